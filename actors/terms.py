"""What a text is sought by: the stems of its words, and the topics they belong to.

A word's keys are its stems (Snowball, Porter 2001) in each language that matters,
with accents folded away before and after, so that "médicos", "medico" and "MÉDICA"
meet. Writing without spaces is keyed by single characters and by pairs of them, as
is usual in the retrieval of Chinese (Nie & Ren, "Chinese information retrieval:
using characters or words?", 1999). A topic is what a question may call by one word
and a fact by another: ``recalling/*.toml`` lists each language's words for it, and
a topic has one name in all of them.
"""

from __future__ import annotations

import importlib.resources
import operator
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

import snowballstemmer  # type: ignore[import-untyped]

from interturn.actors.language import Language, library
from interturn.actors.once import once
from interturn.actors.words import WORD, fold

STEMMERS: Final = {
    "ar": "arabic",
    "ca": "catalan",
    "de": "german",
    "en": "english",
    "es": "spanish",
    "fr": "french",
    "it": "italian",
    "pt": "portuguese",
    "ru": "russian",
}
UNTOLD: Final = ("en", "es")
"""How a text is read that doesn't give its language away."""

_LONGEST_WORD: Final = 40
_MOST_KNOWN: Final = 16_384  # words whose stems are remembered
# Scripts that write no spaces, and Hangul, whose particles cling to its words.
_UNSPACED: Final = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+"
)
_ENTRY: Final = re.compile(r'"([^"]+)"|(\S+)')
_JOINTS: Final = re.compile(r"[-'’·@.,:/_]+")  # noqa: RUF001
_ARABIC: Final = str.maketrans("أإآىة", "ااايه", "\u0640" + "".join(map(chr, range(0x64B, 0x653))))


def words(text: str, language: Language, most: int) -> Iterable[tuple[str, int]]:
    """Return the first ``most`` words of ``text`` with their marks, as ``language`` reads them.

    Of unspaced writing, the characters and the pairs of them.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    shelf = library().by_code
    readers = (language,) if language.code else tuple(shelf[code] for code in UNTOLD)
    found = WORD.findall(text[: most * _LONGEST_WORD])
    # What folds to nothing, an accent on no letter, is no word to those who mark it.
    pieces = [piece for piece in found if piece.isascii() or fold(piece)][:most]
    spoken = " ".join(pieces)
    marks, *others = (reader.hear(spoken)[1][: len(pieces)] for reader in readers)
    for other in others:
        marks = tuple(map(operator.or_, marks, other))
    marked = zip(pieces, marks, strict=True)
    return _parted(marked) if _UNSPACED.search(spoken) else marked


def _parted(marked: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Yield words, and in the stead of unspaced writing its characters and their pairs."""
    for piece, mark in marked:
        if piece.isascii() or not _UNSPACED.search(piece):
            yield piece, mark
            continue
        start = 0
        for run in _UNSPACED.finditer(piece):
            if run.start() > start:
                yield piece[start : run.start()], 0
            signs = run.group()
            yield from ((one + two, 0) for one, two in pairwise(signs))
            yield from ((sign, 0) for sign in signs)
            start = run.end()
        if start < len(piece):
            yield piece[start:], 0


_known: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}


def keys(word: str, codes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keys of ``word``: its stems in each of the languages ``codes``, folded.

    A word of several parts ("light-blue", "7710-22") has those of each part; with
    digits in it, the whole as well.
    """
    stems = _known.get((word, codes))
    if stems is None:
        found: dict[str, None] = {}
        parts = _JOINTS.split(word)
        if len(parts) > 1 and any(map(str.isdigit, word)):
            found[fold(word)] = None
        for part in parts:
            found.update(dict.fromkeys(_stems(part, codes)))
        stems = tuple(found)
        # A name or a number would outlive its facts here, so neither is remembered.
        if word.islower() and word.isalpha() and len(word) <= _LONGEST_WORD:
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[word, codes] = stems
    return stems


def _stems(part: str, codes: tuple[str, ...]) -> Iterator[str]:
    lower = part.lower().translate(_ARABIC)
    folded = fold(lower).replace("ё", "е")  # noqa: RUF001
    if not folded:
        return
    if len(folded) > _LONGEST_WORD or not folded.isalpha() or _UNSPACED.match(folded):
        yield folded
        return
    for code in codes:
        # A stemmer has a state of its own, so each word gets its own: threads may ask.
        yield fold(snowballstemmer.stemmer(STEMMERS[code]).stemWord(lower))
        if folded != lower:
            yield snowballstemmer.stemmer(STEMMERS[code]).stemWord(folded)


class _Topics(NamedTuple):
    """The topics of one language's words, by the whole word and by how it begins."""

    words: dict[str, tuple[str, ...]]
    beginnings: dict[str, list[tuple[str, str]]]


_HEAD: Final = 3  # letters that beginnings are filed under


@once
def recalling() -> dict[str, dict[str, object]]:
    """Return what each language's file says, by its code, read from the package once."""
    folder = importlib.resources.files("interturn.actors") / "recalling"
    files = [file for file in folder.iterdir() if file.name.endswith(".toml")]
    read = [tomllib.loads(file.read_text(encoding="utf-8")) for file in files]
    return {str(data["code"]): data for data in read}


def entries(said: object) -> list[str]:
    """Return the entries of one list in a file, phrases without their quotes."""
    found = _ENTRY.findall(said) if isinstance(said, str) else []
    return [phrase or word for phrase, word in found]


@once
def _lists() -> dict[str, _Topics]:
    lists: dict[str, _Topics] = {}
    for code, data in recalling().items():
        words: dict[str, tuple[str, ...]] = {}
        beginnings: dict[str, list[tuple[str, str]]] = {}
        named = data.get("topics", {})
        for topic, said in named.items() if isinstance(named, dict) else ():
            name = "#" + topic
            words[topic] = (*words.get(topic, ()), name)
            for entry in entries(said):
                if entry.endswith("*"):
                    beginnings.setdefault(entry[:_HEAD], []).append((entry[:-1], name))
                else:
                    words[entry] = (*words.get(entry, ()), name)
        lists[code] = _Topics(words, beginnings)
    return lists


def slot_topics(slot: str) -> tuple[str, ...]:
    """Return the topics that a slot's name says: ``allergy:latex``, ``customer-number``."""
    head = fold(slot.partition(":")[0])
    found = topics(head, UNTOLD)
    if not found:
        found = tuple(topic for part in head.split("-") for topic in topics(part, UNTOLD))
    return found


def topics(word: str, codes: Iterable[str]) -> tuple[str, ...]:
    """Return the topics of a folded word in any of the languages ``codes``."""
    found: dict[str, None] = {}
    for code in codes:
        listed = _lists().get(code)
        if listed is not None:
            found.update(dict.fromkeys(listed.words.get(word, ())))
            for beginning, topic in listed.beginnings.get(word[:_HEAD], ()):
                if word.startswith(beginning):
                    found[topic] = None
    return tuple(found)
