"""What was said: messages, and the discretion that every value with words keeps."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

Role = Literal["visitor", "agent"]


class Discreet(msgspec.Struct, frozen=True):
    """A frozen value whose `repr` tells sizes and counts, never words or ids.

    A `repr` ends up in logs and tracebacks, so strings and bytes show their
    length, containers their number of items; numbers, flags and times show.
    """

    def __repr__(self) -> str:
        fields = (f"{name}={_veiled(getattr(self, name))}" for name in self.__struct_fields__)
        return f"{type(self).__name__}({', '.join(fields)})"


def _veiled(value: object) -> str:
    if isinstance(value, (str, bytes)):
        return f"<{len(value)} {'characters' if isinstance(value, str) else 'bytes'}>"
    if isinstance(value, (tuple, list, dict, set, frozenset)):
        return f"<{len(value)} items>"
    return repr(value)


class Message(Discreet, frozen=True, gc=False):
    """One message of a session, word for word.

    Attributes:
        seq: its place in the session, from 1, without gaps; the visitor's are odd.
        role: ``"visitor"`` or ``"agent"``.
        text: as sent, byte for byte.
        at: when it was said or recorded (UTC). Describes; never orders.
        tokens: its length in tokens by the runtime's counter.
    """

    seq: int
    role: Role
    text: str
    at: datetime
    tokens: int
