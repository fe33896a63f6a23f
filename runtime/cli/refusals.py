"""What went wrong, as one sentence in the language of whoever typed the command."""

from __future__ import annotations

import errno

from interturn.actors.errors import InterturnError
from interturn.runtime.cli.reasons import in_words
from interturn.runtime.cli.records import TranscriptError
from interturn.runtime.cli.texts import Texts


class Refusal(Exception):
    """A refusal of the command line's own.

    Args:
        key: of the sentence in the texts.
        values: that it is filled with.
    """

    def __init__(self, key: str, /, **values: object) -> None:
        super().__init__(key)
        self.key = key
        self.values = values


class Misuse(Refusal):
    """The command was typed wrongly, in a way that only its meaning shows."""


EXPECTED = (Refusal, InterturnError, OSError, ValueError)
"""What ends a command with one line. Anything else is a defect, and shows as one."""


def sentence(error: BaseException, texts: Texts) -> str:
    """Return what happened in one sentence without anyone's words."""
    match error:
        case Refusal():
            return texts(error.key, **error.values)
        case TranscriptError():
            return _transcript(error, texts)
        case InterturnError():
            return _declared(error, texts)
        case OSError(errno=int()):
            return _os(error, texts)
    return texts("error.InterturnError", message=in_words(str(error), texts))


def _declared(error: InterturnError, texts: Texts) -> str:
    """Look the sentence up by the error's class, then by those it inherits from."""
    for kind in type(error).__mro__:
        key = f"error.{kind.__name__}"
        if key in texts:
            return texts(key, **{"message": error, **_values(error, texts)})
    return str(error)


def _values(error: InterturnError, texts: Texts) -> dict[str, object]:
    """Return an error's fields, those that are sentences of ours in the language."""
    return {
        name: in_words(value, texts) if name in {"reason", "bound", "cause"} else value
        for name, value in vars(error).items()
    }


def _transcript(error: TranscriptError, texts: Texts) -> str:
    place = texts("error.line", file=error.file, line=error.line) if error.line else error.file
    reason = texts(f"transcript.{error.reason}")
    if error.where:
        reason = texts("error.at", reason=reason, where=error.where)
    return texts("error.TranscriptError", place=place, reason=reason)


def _os(error: OSError, texts: Texts) -> str:
    name = errno.errorcode.get(error.errno or 0, "")
    reason = texts(f"os.{name}") if f"os.{name}" in texts else error.strerror
    if error.filename is None:
        return str(reason)
    return texts("error.OSError", path=error.filename, reason=reason)
