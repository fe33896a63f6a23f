"""What an error says in the library's own words, said in the language of the output.

Errors carry a reason in English, with sizes and bounds in it. Each that a person can
cause at the command line is known here by its words; a test raises them.
What is not known is left as it is.
"""

from __future__ import annotations

import re
from typing import Final

from interturn.runtime.cli.texts import Texts

_KNOWN: Final = tuple(
    (re.compile(pattern), key)
    for pattern, key in (
        (r"(?P<size>[\d,]+) bytes of UTF-8, (?P<bound>[\d,]+) allowed", "reason.bytes"),
        (r"is empty", "reason.empty"),
        (r"has control characters", "reason.controls"),
        (r"has lone surrogates, which aren't text", "reason.surrogates"),
        (r"the time needs a zone", "reason.zone"),
        (r"the time is out of range in UTC", "reason.range"),
        (r"a whole number of (?P<unit>.+)", "reason.whole"),
        (r"a number of (?P<unit>.+)", "reason.number"),
        (r"between (?P<low>[\d.,]+) and (?P<high>[\d.,]+) (?P<unit>.+)", "reason.between"),
        (r"an even number of messages, since turns are pairs", "reason.even"),
        (r"at most (?P<windows>[\d,]+) windows of messages", "reason.windows"),
        (r"full or normal", "reason.durability"),
        (r"true or false", "reason.truth"),
        (r"a TOML file", "reason.toml"),
        (r"a setting's name", "reason.name"),
        (r"text", "reason.text"),
        (r"one of (?P<names>.+)", "reason.one_of"),
        (r"this database keeps its keys in a file of their own.*", "reason.keys_apart"),
        (r"this database keeps its keys inside.*", "reason.keys_inside"),
        (r"the keys file of this database is (missing|empty)", "reason.keys_missing"),
        (r"the keys file belongs to another database", "reason.keys_another"),
        (r"the keys need a file of their own, not the database's", "reason.keys_own"),
        (r"this file is not an interturn (database|keys file)", "reason.not_ours"),
        (r"SQLITE_NOTADB: .*", "reason.not_ours"),
        (r"SQLITE_CORRUPT\w*: .*|\w+: the database is damaged", "reason.damaged"),
        (r"what the database says of itself is damaged", "reason.damaged"),
        (r"the file is cut short", "reason.damaged"),
        (r"SQLITE_(BUSY|LOCKED)\w*: .*", "reason.busy"),
        (r"SQLITE_CANTOPEN\w*: .*", "reason.cannot_open"),
        (r"SQLITE_IOERR\w*: .*", "reason.disk"),
        (r"the database is not where it was", "reason.moved"),
        (r"this file system does not allow a write-ahead log", "reason.no_log"),
        (r"somebody who reads keeps the log from being emptied.*", "reason.reader"),
        (r"key file (?P<path>.+): others may use it \(.*", "reason.key_open"),
        (r"key file (?P<path>.+): .*", "reason.key_file"),
        (r"(?P<name>\w+) must hold keys of .*", "reason.key_variable"),
        (r"the name of an encoding", "reason.encoding"),
        (r"SQLITE_FULL: .*", "os.ENOSPC"),
        (r"SQLITE_READONLY\w*: .*", "os.EROFS"),
    )
)


def in_words(reason: object, texts: Texts) -> str:
    """Return a reason in the language of ``texts``, or as it is where it isn't known."""
    for pattern, key in _KNOWN:
        if found := pattern.fullmatch(str(reason)):
            values = found.groupdict()
            for name in {"size", "bound", "low", "high", "windows"} & values.keys():
                values[name] = texts.number(values[name])
            if unit := values.get("unit"):
                unit_key = f"unit.{unit}"
                values["unit"] = texts(unit_key) if unit_key in texts else unit
            return texts(key, **values)
    return str(reason)
