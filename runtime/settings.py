"""Every bound of the runtime, named, with its unit, default and reason."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from interturn.actors.customer import CustomerLimits
from interturn.actors.session import TAKEOVER, Limits
from interturn.runtime.errors import InvalidSettings

_PREFIX: Final = "INTERTURN_"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The runtime's bounds. A value out of its range raises `InvalidSettings`.

    Attributes:
        window: messages kept word for word; even. Twelve are six turns, about
            what people refer back to in passing.
        fold_at: surplus messages that start a fold. Two fold each turn as it
            leaves; more make fewer, larger folds.
        deliveries: recent delivery ids known in memory, for each session. Older
            ones are found when the turn is written.
        summary_tokens: tokens of the summary at most.
        compaction_tokens: tokens at most that stand for the history a budget drops.
        profile_tokens: tokens of the profile at most.
        facts_tokens: tokens of the facts in a request at most.
        facts_per_customer: facts of a customer at most.
        profile_every: turns of a customer between refreshes of the profile.
        budget: tokens of a request at most, unless the call says otherwise.
        text_bytes: UTF-8 bytes of one text at most.
        mailbox: messages that may wait for one actor. A person who sends more
            than this before the first answer isn't one.
        queued: messages that may wait in all.
        active: actors in memory. An active session costs its texts and about 1 kB.
        idle_s: seconds after which an idle actor leaves memory.
        turn_s: seconds that a turn may be held once another waits.
        lease_s: seconds without a sign of life after which another host may take
            the database over.
        snapshot_s: seconds between snapshots of a customer at least.
        drain_s: seconds that closing waits for held turns and folds.
        keep_unanswered: whether the visitor's words are on disk before a turn is handed
            out, so that a crash leaves them for `Runtime.unanswered`. One more commit
            for each turn.
        retain_days: days after which `Runtime.prune` removes messages; None keeps them.
        durability: ``full`` survives a power loss, ``normal`` a killed process.
        encoding: tiktoken's encoding for token counts.
    """

    window: int = 12
    fold_at: int = 2
    deliveries: int = 32
    summary_tokens: int = 400
    compaction_tokens: int = 200
    profile_tokens: int = 120
    facts_tokens: int = 300
    facts_per_customer: int = 500
    profile_every: int = 10
    budget: int = 8_000
    text_bytes: int = 1_048_576
    mailbox: int = 64
    queued: int = 100_000
    active: int = 20_000
    idle_s: float = 300.0
    turn_s: float = 120.0
    lease_s: float = 15.0
    snapshot_s: float = 5.0
    drain_s: float = 10.0
    keep_unanswered: bool = False
    retain_days: float | None = None
    durability: Literal["full", "normal"] = "full"
    encoding: str = "o200k_base"

    def __post_init__(self) -> None:
        """Hold every value to its range."""
        for name, (low, high, unit) in _RANGES.items():
            value = getattr(self, name)
            if value is None and name in _OPTIONAL:
                continue
            whole = self.__annotations__[name] == "int"
            if not isinstance(value, int if whole else (int, float)) or isinstance(value, bool):
                raise InvalidSettings(name, f"a {'whole ' if whole else ''}number of {unit}")
            if not low <= value <= high:
                raise InvalidSettings(name, f"between {low:,} and {high:,} {unit}")
        for name in ("window", "fold_at"):
            if getattr(self, name) % 2:
                raise InvalidSettings(name, "an even number of messages, since turns are pairs")
        if self.fold_at > TAKEOVER * self.window:
            raise InvalidSettings("fold_at", f"at most {TAKEOVER} windows of messages")
        if not isinstance(self.keep_unanswered, bool):
            raise InvalidSettings("keep_unanswered", _TRUTH)
        self._check_words()

    def _check_words(self) -> None:
        if self.durability not in ("full", "normal"):
            raise InvalidSettings("durability", "full or normal")
        if not isinstance(self.encoding, str) or not self.encoding.isascii():
            raise InvalidSettings("encoding", "the name of an encoding")

    @property
    def limits(self) -> Limits:
        """The bounds that a session actor holds."""
        return Limits(
            window=self.window,
            fold_at=self.fold_at,
            deliveries=self.deliveries,
            summary_tokens=self.summary_tokens,
            compaction_tokens=self.compaction_tokens,
        )

    @property
    def customer_limits(self) -> CustomerLimits:
        """The bounds that a customer actor holds."""
        return CustomerLimits(
            profile_tokens=self.profile_tokens,
            facts_per_customer=self.facts_per_customer,
            profile_every=self.profile_every,
        )

    @classmethod
    def load(
        cls, path: str | Path | None = None, environ: Mapping[str, str] = os.environ
    ) -> Settings:
        """Read settings from a TOML file, then from ``INTERTURN_*`` variables over it.

        Args:
            path: the file, or None for no file.
            environ: where variables are read; those that name no setting are ignored.

        Raises:
            InvalidSettings: a name that is no setting, or a value out of its range.
            OSError: the file can't be read.
        """
        values: dict[str, Any] = {}
        if path is not None:
            try:
                values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
            except (ValueError, RecursionError):  # tomllib bounds neither digits nor depth
                raise InvalidSettings(str(path), "a TOML file") from None
        for name in cls.__struct_fields__:
            if (value := environ.get(_PREFIX + name.upper())) is not None:
                values[name] = value
        for name in values:
            if name not in cls.__struct_fields__:
                raise InvalidSettings(name, "a setting's name")
        for name, value in values.items():
            kind = _KINDS.get(cls.__annotations__[name], str)
            try:
                values[name] = msgspec.convert(value, kind, strict=False)
            except (msgspec.ValidationError, UnicodeError):
                bound = _TRUTH if kind is bool else "text"
                if name in _RANGES:
                    bound = f"a number of {_RANGES[name][2]}"
                raise InvalidSettings(name, bound) from None
        return cls(**values)


_KINDS: Final[dict[str, type]] = {
    "int": int,
    "float": float,
    "float | None": float,
    "bool": bool,
}
"""By annotation; the rest is text."""

_OPTIONAL: Final = {"retain_days"}
"""Numbers that may be None, which is off."""

_TRUTH: Final = "true or false"

_RANGES: Final[dict[str, tuple[float, float, str]]] = {
    "window": (2, 1_000, "messages"),
    "fold_at": (2, 4_000, "messages"),
    "deliveries": (0, 10_000, "delivery ids"),
    "summary_tokens": (32, 100_000, "tokens"),
    "compaction_tokens": (0, 100_000, "tokens"),
    "profile_tokens": (0, 100_000, "tokens"),
    "facts_tokens": (0, 100_000, "tokens"),
    "facts_per_customer": (1, 100_000, "facts"),
    "profile_every": (1, 1_000_000, "turns"),
    "budget": (1, 100_000_000, "tokens"),
    "text_bytes": (1, 268_435_456, "bytes"),
    "mailbox": (1, 1_000_000, "messages"),
    "queued": (1, 100_000_000, "messages"),
    "active": (2, 100_000_000, "actors"),
    "idle_s": (0.01, 31_536_000, "seconds"),
    "turn_s": (0.01, 31_536_000, "seconds"),
    "lease_s": (0.1, 86_400, "seconds"),
    "snapshot_s": (0, 86_400, "seconds"),
    "drain_s": (0, 86_400, "seconds"),
    "retain_days": (0, 36_500, "days"),
}
"""Lowest and highest value and the unit of each number."""
