"""Where a text may be parted: sentences, clauses, words, and never within a grapheme."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

from interturn.actors.language import Language
from interturn.actors.pace import breathe

ELLIPSIS: Final = "…"
_TAIL: Final = 3  # one part in three is kept for the end of what is too long
QUESTION_MARKS: Final = ("?", "？", "؟")  # noqa: RUF001

# One class of characters in front lets the search skip from mark to mark.
_END: Final = re.compile(r"([.!?…。！？؟۔।॥\n]+)[\"'”»’)\]」』）]*")  # noqa: RUF001
_SPACED_ENDS: Final = frozenset(".!?…")
_WORD_BEFORE: Final = re.compile(r"(\w+(?:\.\w+)*)$")
_LONGEST_ABBREVIATION: Final = 12
_LEAD: Final = re.compile(r"^(?:[\s>#*•▪●\-–|]+|\d{1,2}[.)]\s+)+")  # noqa: RUF001
_FENCE: Final = re.compile(r"^[ \t]*(```+|~~~+)", re.MULTILINE)
_LOG: Final = re.compile(
    r"\s*(?:\[?\d{1,4}[-:/]\d{2}[-:/]\d{2}|(?:DEBUG|INFO|WARN(?:ING)?|ERROR|FATAL)\b|at \S+\("
    r"|File \"|Traceback \(|\$ |>>> |(?:def|class|import|return|const|var|let|function|public)\s"
    r"|</?\w+[^>]*>\s*$)|.*[{};]\s*$"
)
# One class in front here too: commas and their like, dashes between blanks, brackets.
_CLAUSE: Final = re.compile(
    r"[,;:،؛，、；：\s)](?:(?<=[,;:،؛，、；：])[,;:،؛，、；：]*\s*"  # noqa: RUF001
    r"|(?<=\s)(?:[–—-]\s|\()|(?<=\))\s)"  # noqa: RUF001
)
_ZWJ: Final = "\u200d"
_JOINERS: Final = frozenset({_ZWJ, "\u0e33", "\u0eb3"})
_VIRAMA: Final = 9
LONGEST_GRAPHEME: Final = 128  # code points
_LONGEST_FLAGS: Final = 4_096  # flags in a row, counted in pairs
_FLAGS: Final = range(0x1F1E6, 0x1F200)
_SKINS: Final = range(0x1F3FB, 0x1F400)
_TAGS: Final = range(0xE0020, 0xE0080)
_JAMO: Final = range(0x1160, 0x1200)


def sentences(text: str, language: Language) -> list[str]:
    """Return the sentences of ``text`` in order, each on one line, none empty.

    A new line ends a sentence unless the next line goes on in lower case. List
    marks and emphasis at the beginning of a line are left out.
    """
    found: list[str] = []
    start = 0
    for end in _END.finditer(text):
        breathe()
        close = end.end()
        if _ends(text, end.group(1), start, end.start(), close, language):
            _add(found, text[start:close])
            start = close
    _add(found, text[start:])
    return found


def _add(found: list[str], piece: str) -> None:
    line = " ".join(piece.split())
    if line[:1] in "*>#•▪●-–|0123456789":  # noqa: RUF001
        line = _LEAD.sub("", line)
    if "**" in line:
        line = line.replace("**", "")
    if line:
        found.append(line)


def _ends(text: str, mark: str, start: int, at: int, close: int, language: Language) -> bool:
    following = text[close : close + 1]
    if mark[0] == "\n":
        return len(mark) > 1 or not following.islower()
    if mark[-1] in _SPACED_ENDS and following and not following.isspace():
        # Within "3.5" or "a.com" nothing ends; "Wow!Great" and "¿Sí?¿No?" do.
        return mark[-1] in "!?" and (following.isupper() or following in "¿¡")
    if mark != ".":
        return True
    begin = max(start, at - _LONGEST_ABBREVIATION)
    word = text[begin:at].rpartition(" ")[2]
    if not word.isalpha():
        before = _WORD_BEFORE.search(text, begin, at)
        if before is None:
            return True
        word = before.group()
        if word.isdigit() and not text[start : before.start()].strip():
            return False
    if len(word) == 1 and word.isalpha():
        return close >= len(text)
    return word.lower() not in language.abbreviations


def parts(text: str) -> Iterator[tuple[bool, str]]:
    """Yield ``(is_code, piece)``: fenced blocks and runs of log lines apart from prose."""
    if "\n" not in text:
        yield False, text
        return
    fenced = False
    start = 0
    for fence in _FENCE.finditer(text):
        yield from _prose_or_code(text[start : fence.start()], fenced=fenced)
        start = text.find("\n", fence.end()) if not fenced else fence.end()
        start = fence.end() if start < 0 else start
        fenced = not fenced
    yield from _prose_or_code(text[start:], fenced=fenced)


def _prose_or_code(piece: str, *, fenced: bool) -> Iterator[tuple[bool, str]]:
    if not piece.strip():
        return
    if fenced:
        yield True, piece
        return
    lines = piece.split("\n")
    logs = [bool(_LOG.match(line[:400])) for line in lines]
    run = 0
    for place in range(1, len(lines) + 1):
        if place == len(lines) or logs[place] != logs[run]:
            # One odd line is prose; it takes two to make a log.
            yield logs[run] and place - run > 1, "\n".join(lines[run:place])
            run = place


def clauses(sentence: str) -> list[str]:
    """Return the clauses of a sentence, which joined give the sentence again."""
    cuts = [0, *[mark.end() for mark in _CLAUSE.finditer(sentence)], len(sentence)]
    return [sentence[a:b] for a, b in pairwise(cuts) if a < b]


def cut(text: str, length: int) -> str:
    """Return at most ``length`` characters of ``text``, with a visible ``…`` if cut.

    The cut falls at the end of a sentence or else of a word, if there is one in
    the second half; never within a grapheme, so no emoji family is parted.
    """
    if len(text) <= length:
        return text
    room = length - len(ELLIPSIS)
    if room <= 0:
        return ""
    kept = text[: boundary(text, room)]
    ends = max(kept.rfind(mark) for mark in (". ", "! ", "? ", "。", "！", "？"))  # noqa: RUF001
    if ends >= room // 2:
        return kept[: ends + 1] + " " + ELLIPSIS if len(kept) > ends + 2 else kept[: ends + 1]
    if not text[len(kept) : len(kept) + 1].isspace():
        space = kept.rfind(" ")
        if space >= room // 2:
            kept = kept[:space]
    kept = kept.rstrip(" ,;:-–—")  # noqa: RUF001
    return kept + ELLIPSIS if kept else ""


def cut_to(text: str, cap: int, count: Callable[[str], int], *, tokens: int) -> str:
    """Return ``text`` cut to ``cap`` tokens by ``count``, or ``""`` if nothing fits.

    ``tokens`` is the length of the whole. The cut is aimed by proportion, then
    lower each time, so that no counter, however odd, can hold it up.
    """
    length = len(text)
    while length > 1:
        length = min(length * 15 // 16, max(1, length * cap // max(tokens, 1)))
        kept = cut(text, length)
        if not kept:
            break
        tokens = count(kept)
        if tokens <= cap:
            return kept
    return ""


def bounded(text: str, length: int) -> str:
    """Return the head and the tail of a text of more than ``length`` characters."""
    if len(text) <= length:
        return text
    tail = length // _TAIL
    head = text[: boundary(text, length - tail)]
    return head + "\n\n" + text[boundary(text, len(text) - tail) :]


def boundary(text: str, index: int) -> int:
    """Return the nearest place at or before ``index`` that parts no grapheme.

    What goes on for over `LONGEST_GRAPHEME` code points is no grapheme anybody
    reads, and may be parted: so the search is bounded.
    """
    index = min(index, len(text))
    for place in range(index, max(index - LONGEST_GRAPHEME, 0), -1):
        if place == len(text) or not _clings(text, place):
            return place
    return 0 if index <= LONGEST_GRAPHEME else index


def _clings(text: str, index: int) -> bool:
    before, after = text[index - 1], text[index]
    if before == _ZWJ or after in _JOINERS or unicodedata.combining(before) == _VIRAMA:
        return True
    code = ord(after)
    if code in _SKINS or code in _TAGS or code in _JAMO:
        return True
    if code in _FLAGS:
        run = index
        while run > index - _LONGEST_FLAGS and run and ord(text[run - 1]) in _FLAGS:
            run -= 1
        return (index - run) % 2 == 1
    return unicodedata.category(after) in {"Mn", "Mc", "Me"}
