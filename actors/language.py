"""What each language says about its words: which greet, which decide, which deny.

The knowledge is data, one TOML file a language beside this module. Code knows
only the kinds of word that matter to whoever asks what a sentence carries. A
language without a file gets the neutral one: numbers, names and length still
speak, and speakers are told apart by a dash and an arrow.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, cast

from interturn.actors.message import Role

# Kinds of word, as bits: one word may be of several.
GRAMMAR: Final = 1 << 0
COURTESY: Final = 1 << 1
ASSENT: Final = 1 << 2
DATE: Final = 1 << 3
NUMBER: Final = 1 << 4
UNIT: Final = 1 << 5
DECISION: Final = 1 << 6
REQUEST: Final = 1 << 7
NEGATION: Final = 1 << 8
REPLACEMENT: Final = 1 << 9
SHIFT: Final = 1 << 10
TROUBLE: Final = 1 << 11
VITAL: Final = 1 << 12
IDENTITY: Final = 1 << 13
PERSONAL: Final = 1 << 14
ASKED: Final = 1 << 15
INTENT: Final = 1 << 16
FIRST_TOPIC: Final = 1 << 17
SILENT: Final = GRAMMAR | COURTESY | ASSENT

_KINDS: Final = {
    "grammar": GRAMMAR,
    "courtesy": COURTESY,
    "assent": ASSENT,
    "dates": DATE,
    "numbers": NUMBER,
    "units": UNIT,
    "decisions": DECISION,
    "requests": REQUEST,
    "negations": NEGATION,
    "replacements": REPLACEMENT,
    "shifts": SHIFT,
    "troubles": TROUBLE,
    "vital": VITAL,
    "identity": IDENTITY,
    "personal": PERSONAL,
    "asked": ASKED,
    "intents": INTENT,
}
# What a later statement may replace an earlier one about, whatever verb each uses.
_TOPICS: Final = ("home", "phone", "mail", "work", "plan", "hour", "pay")
TOPIC_BITS: Final = tuple(FIRST_TOPIC << place for place in range(len(_TOPICS)))

# Marks that sit on letters in scripts where Python's \w stops at them.
_MARKS: Final = (
    "\u0300-\u036f\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff"
    "\u0e31-\u0e3a\u0e47-\u0e4e\u0eb1-\u0ebc\u0ec8-\u0ece\u0f71-\u0f84\u1000-\u109f\u1780-\u17d3"
)
WORD: Final = re.compile(
    rf"[\w{_MARKS}]+(?:(?:[-'’·@]|(?<=\d)[.,:/](?=\d))[\w{_MARKS}]+)*"  # noqa: RUF001
)
_ENTRY: Final = re.compile(r'"([^"]+)"|(\S+)')
_KANA: Final = re.compile(r"[\u3040-\u30ff]")
_SCRIPTS: Final = (
    ("Han", re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")),
    ("Arabic", re.compile(r"[\u0600-\u06ff]")),
    ("Cyrillic", re.compile(r"[\u0400-\u04ff]")),
)
_VOTING_CHARACTERS: Final = 300
_WORDS_A_VOTE: Final = 7
_SHORTEST_BEGINNING: Final = 3
_LATIN_ENDS: Final = 0x0250
_LATIN_MORE: Final = range(0x1E00, 0x1F00)


_ACCENTED: Final = re.compile(r"[\u00c0-\u024f\u0300-\u036f\u1e00-\u1eff’]")  # noqa: RUF001


def _folding() -> dict[str, str]:
    table = {chr(code): "" for code in range(0x0300, 0x0370)}
    for code in (*range(0x00C0, _LATIN_ENDS), *_LATIN_MORE):
        base = unicodedata.normalize("NFD", chr(code))[0]
        table[chr(code)] = base.lower() if base.isascii() else chr(code)
    return table | {"’": "'", "ß": "ss", "ł": "l", "Ł": "l", "ø": "o", "Ø": "o"}  # noqa: RUF001


_FOLD: Final = _folding()


def _unaccented(accented: re.Match[str]) -> str:
    return _FOLD[accented.group()]


def fold(text: str) -> str:
    """Return ``text`` in lower case without Latin accents, as the word lists are kept."""
    return (text if text.isascii() else _ACCENTED.sub(_unaccented, text)).lower()


class _Lexicon(dict[str, int]):
    """Kinds by word. An unlisted word gets the kinds of the beginnings it matches.

    Nothing is remembered about unlisted words: they are people's words, and
    would otherwise outlive the conversation they came from.
    """

    def __init__(self) -> None:
        super().__init__()
        # By their first letters, so that most words have nothing to compare with.
        self.beginnings: dict[str, list[tuple[str, int]]] = {}

    def __missing__(self, word: str) -> int:
        kinds = 0
        for beginning, kind in self.beginnings.get(word[:_SHORTEST_BEGINNING], ()):
            if word.startswith(beginning):
                kinds |= kind
        if not kinds and "'" in word:
            longest = max(word.split("'"), key=len)
            return self[longest] if longest != word else 0
        return kinds


class Language:
    """The words of one language, read once and never changed.

    Attributes:
        code: ISO 639-1, or ``""`` for the neutral language.
        speakers: what stands in front of a sentence, by who said it.
        spaced: words stand apart; if not, entries are sought anywhere in a sentence.
        capitals_name: a capital within a sentence marks a name.
        script: the writing that gives the language away, if one does.
    """

    def __init__(self, data: Mapping[str, object]) -> None:
        self.code = str(data.get("code", ""))
        self.speakers: dict[Role, str] = {
            "visitor": str(data.get("visitor", "— ")),
            "agent": str(data.get("agent", "→ ")),
        }
        self.spaced = bool(data.get("spaced", True))
        self.capitals_name = bool(data.get("capitals_name", True))
        self.script = str(data.get("script", ""))
        self.abbreviations = frozenset(_entries(data.get("abbreviations")))
        self.nothing = tuple(_plain(_entries(data.get("nothing"))))
        self.refusals = tuple(_plain(_entries(data.get("refusals"))))
        self.labels = tuple(_plain(_entries(data.get("labels"))))
        self.entries: list[tuple[str, int]] = []
        self._lexicon = _Lexicon()
        # By their first two words, so that most words are passed at a glance.
        self._phrases: dict[str, dict[str, list[tuple[list[str], int]]]] = {}
        for field, kind in _KINDS.items():
            self._learn(_entries(data.get(field)), kind)
        topics = data.get("topics", {})
        if isinstance(topics, dict):
            for topic, bit in zip(_TOPICS, TOPIC_BITS, strict=True):
                self._learn(_entries(topics.get(topic)), bit)
        for seconds in self._phrases.values():
            for phrases in seconds.values():
                phrases.sort(key=lambda phrase: -len(phrase[0]))

    def _learn(self, entries: Iterable[str], kind: int) -> None:
        for entry in entries:
            self.entries.append((entry, kind))
            if entry.endswith("*"):
                head = entry[:_SHORTEST_BEGINNING]
                self._lexicon.beginnings.setdefault(head, []).append((entry[:-1], kind))
                continue
            words = WORD.findall(entry)
            if len(words) == 1:
                self._lexicon[words[0]] = self._lexicon.get(words[0], 0) | kind
            elif words:
                seconds = self._phrases.setdefault(words[0], {})
                seconds.setdefault(words[1], []).append((words[1:], kind))

    def marks(self, words: Sequence[str]) -> list[int]:
        """Return the kinds of each folded word, phrases taken as a whole."""
        lexicon = self._lexicon
        marks = [lexicon[word] for word in words]
        firsts = self._phrases
        for place, second in enumerate(words[1:]):
            seconds = firsts.get(words[place])
            if seconds and second in seconds:
                _mark_phrases(seconds[second], words, marks, place)
        return marks

    def only_greets(self, clause: str) -> bool:
        """Return whether nothing is left of an unspaced clause without its courtesies."""
        rest = clause
        for entry, kind in self.entries:
            if kind & (COURTESY | GRAMMAR):
                rest = rest.replace(entry, "")
        return rest != clause and not any(map(str.isalnum, rest))

    def ballot(self) -> list[str]:
        """Return the single words that give this language away."""
        return [
            entry
            for entry, kind in self.entries
            if kind & (GRAMMAR | COURTESY) and " " not in entry and not entry.endswith("*")
        ]


def _mark_phrases(
    phrases: Iterable[tuple[list[str], int]], words: Sequence[str], marks: list[int], place: int
) -> None:
    """Mark the longest phrases that begin at ``place``: one may be of several kinds."""
    covered = 0
    for rest, kind in phrases:
        end = place + 1 + len(rest)
        if len(rest) < covered or words[place + 1 : end] != rest:
            continue
        covered = len(rest)
        if kind & SILENT:
            marks[place:end] = [kind] * (end - place)
            continue
        marks[place] |= kind | GRAMMAR
        for inside in range(place + 1, end):
            marks[inside] |= GRAMMAR


def _entries(listed: object) -> list[str]:
    text = fold(listed) if isinstance(listed, str) else ""
    return [phrase or word for phrase, word in _ENTRY.findall(text)]


def _plain(entries: Iterable[str]) -> list[str]:
    return [" ".join(WORD.findall(entry)) for entry in entries]


NEUTRAL: Final = Language({})


class _Library(NamedTuple):
    languages: tuple[Language, ...]
    by_code: dict[str, Language]
    by_script: dict[str, Language]
    speakers: tuple[tuple[str, Role, Language], ...]
    votes: dict[str, tuple[int, ...]]
    nothing: frozenset[str]
    nothing_more: tuple[str, ...]
    refusals: tuple[str, ...]
    labels: frozenset[str]


@functools.cache
def library() -> _Library:
    """Return every language there is a file for, read from the package once."""
    folder = importlib.resources.files("interturn.actors") / "languages"
    files = [file for file in folder.iterdir() if file.name.endswith(".toml")]
    loaded = [
        Language(cast("Mapping[str, object]", tomllib.loads(file.read_text(encoding="utf-8"))))
        for file in files
    ]
    # English and Spanish first: on a tie of votes they win.
    languages = tuple(
        sorted(loaded, key=lambda known: (known.code not in {"en", "es"}, known.code))
    )
    votes: dict[str, tuple[int, ...]] = {}
    for place, language in enumerate(languages):
        for word in dict.fromkeys(language.ballot()):
            votes[word] = (*votes.get(word, ()), place)
    # Where two languages share a prefix, the first of them stands for both.
    speakers: dict[tuple[str, Role], Language] = {}
    for language in (*languages, NEUTRAL):
        for role, prefix in language.speakers.items():
            speakers.setdefault((prefix, role), language)
    return _Library(
        languages,
        {language.code: language for language in languages},
        {language.script: language for language in languages if language.script},
        tuple((prefix, role, language) for (prefix, role), language in speakers.items()),
        votes,
        frozenset(phrase for language in languages for phrase in language.nothing),
        tuple(
            phrase + " " for language in languages for phrase in language.nothing if " " in phrase
        ),
        tuple(phrase for language in languages for phrase in language.refusals),
        frozenset(label for language in languages for label in language.labels),
    )


def speaker_of(line: str) -> tuple[Role | None, str, Language | None]:
    """Return who a summary's line says spoke, what they said, and in whose prefix."""
    for prefix, role, language in library().speakers:
        if line.startswith(prefix):
            return role, line[len(prefix) :], language
    return None, line, None


def detect(text: str, fallback: Language | None = None) -> Language:
    """Return the language that ``text`` gives away by its script or its commonest words.

    With nothing to go by, ``fallback``; without one, the neutral language. Looks
    at the beginning of the text only, so its cost is bounded.
    """
    return detect_all([text], fallback)[1][0]


def detect_all(
    texts: Sequence[str], fallback: Language | None = None
) -> tuple[Language, list[Language]]:
    """Return the language of ``texts`` as a whole, and that of each within the whole."""
    shelf = library()
    samples = [text[:_VOTING_CHARACTERS] for text in texts]
    scripts = [None if sample.isascii() else _by_script(sample, shelf) for sample in samples]
    polls = [_poll(sample, shelf) for sample in samples]
    written = next((script for script in scripts if script is not None), None)
    whole = _elected([sum(votes) for votes in zip(*polls, strict=True)], fallback or written)
    each = [script or _elected(poll, whole) for script, poll in zip(scripts, polls, strict=True)]
    return whole, each


def _poll(sample: str, shelf: _Library) -> list[int]:
    """Return the votes for each language, and last the number of words that were asked."""
    words = WORD.findall(fold(sample))
    poll = [0] * (len(shelf.languages) + 1)
    votes = shelf.votes
    for word in words:
        if word in votes:
            for place in votes[word]:
                poll[place] += 1
    poll[-1] = len(words)
    return poll


def _elected(poll: list[int], fallback: Language | None) -> Language:
    *tally, words = poll or [0]
    most = max(tally, default=0)
    # A language shows in every few words; fewer are loans, or another language's own.
    if most * _WORDS_A_VOTE < words or not most:
        return fallback or NEUTRAL
    languages = library().languages
    # One word more of another language is an accident; two are a language.
    if fallback in languages and tally[languages.index(fallback)] + 1 >= most:
        return fallback
    return languages[tally.index(most)]


def _by_script(sample: str, shelf: _Library) -> Language | None:
    if _KANA.search(sample):
        return shelf.by_script.get("Kana")
    letters = len(sample)
    for script, pattern in _SCRIPTS:
        if len(pattern.findall(sample)) * 4 > letters:
            return shelf.by_script.get(script)
    return None
