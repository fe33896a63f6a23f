"""What each language says about its words: which greet, which decide, which deny.

The knowledge is data, one TOML file a language beside this module. Code knows
only the kinds of word that matter to whoever asks what a sentence carries. A
language without a file gets the neutral one: numbers, names and length still
speak, and speakers are told apart by a dash and an arrow.
"""

from __future__ import annotations

import functools
import importlib.resources
import operator
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, cast

from interturn.actors.message import Role
from interturn.actors.once import once
from interturn.actors.words import LONGEST_WORD, WORD, fold, remember, stem_key

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
KINDS: Final = (1 << 24) - 1
# What else a word's mark says of it.
CAPITAL: Final = 1 << 24
ODD: Final = 1 << 25  # not of letters only
ENDLESS: Final = 1 << 26  # a token, a hash, a pasted blob: no word
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

_ENTRY: Final = re.compile(r'"([^"]+)"|(\S+)')
_KANA: Final = re.compile(r"[\u3040-\u30ff]")
_SCRIPT: Final = re.compile(r"[\u0400-\u04ff\u0600-\u06ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_SCRIPTS: Final = (
    ("Han", re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")),
    ("Arabic", re.compile(r"[\u0600-\u06ff]")),
    ("Cyrillic", re.compile(r"[\u0400-\u04ff]")),
)
_VOTING_CHARACTERS: Final = 300
_WORDS_A_VOTE: Final = 7
_SHORTEST_BEGINNING: Final = 3


Word = tuple[str, int, int]
"""A folded word, its mark (its kinds and more), and the fingerprint of its stem."""

Heard = tuple[tuple[str, ...], Sequence[int], tuple[int, ...], int]
"""The words of a text, their marks, their fingerprints, and all marks together."""


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
        self._entries: list[tuple[str, int]] = []
        self._by_sign: dict[str, list[tuple[int, str, int]]] = {}
        self._words: dict[str, int] = {}
        self._known: dict[str, Word] = {}
        # By their first letters, so that most words have nothing to compare with.
        self._beginnings: dict[str, list[tuple[str, int]]] = {}
        # By their first two words, so that most words are passed at a glance.
        self._phrases: dict[tuple[str, str], list[tuple[tuple[str, ...], int]]] = {}
        for field, kind in _KINDS.items():
            self._learn(_entries(data.get(field)), kind)
        topics = data.get("topics", {})
        if isinstance(topics, dict):
            for topic, bit in zip(_TOPICS, TOPIC_BITS, strict=True):
                self._learn(_entries(topics.get(topic)), bit)
        for phrases in self._phrases.values():
            phrases.sort(key=lambda phrase: -len(phrase[0]))
        self._pairs = frozenset(self._phrases)
        for place, (entry, kind) in enumerate(self._entries):
            self._by_sign.setdefault(entry[0], []).append((place, entry, kind))

    def _learn(self, entries: Iterable[str], kind: int) -> None:
        for entry in entries:
            self._entries.append((entry, kind))
            if entry.endswith("*"):
                head = entry[:_SHORTEST_BEGINNING]
                self._beginnings.setdefault(head, []).append((entry[:-1], kind))
                continue
            words = WORD.findall(entry)
            if len(words) == 1:
                self._words[words[0]] = self._words.get(words[0], 0) | kind
            elif words:
                phrases = self._phrases.setdefault((words[0], words[1]), [])
                phrases.append((tuple(words), kind))

    def _kinds(self, word: str) -> int:
        """Return a word's kinds; an unlisted word gets those of the beginnings it matches."""
        kinds = self._words.get(word)
        if kinds is not None:
            return kinds
        kinds = 0
        for beginning, kind in self._beginnings.get(word[:_SHORTEST_BEGINNING], ()):
            if word.startswith(beginning):
                kinds |= kind
        if not kinds and "'" in word:
            longest = max(word.split("'"), key=len)
            return self._kinds(longest) if longest != word else 0
        return kinds

    def words(self, text: str) -> list[Word]:
        """Return the words of ``text``, in order."""
        tokens = text.split()
        words = [*map(self._known.get, tokens)]
        place = 0
        for _ in range(words.count(None)):
            # A token is a word as a rule, but "and/or" is two and "-" is none: so the
            # places of what is still unknown agree only when counted from the end.
            place = words.index(None, place)
            learned = self._learned(tokens[place - len(words)])
            words[place : place + 1] = learned
            place += len(learned)
        return cast("list[Word]", words)

    def heard(self, spoken: Sequence[Word]) -> Heard:
        """Return what words are together, phrases taken as a whole."""
        if not spoken:
            return (), (), (), 0
        words, marks, keys = zip(*spoken, strict=True)
        if not self._pairs.isdisjoint(pairwise(words)):
            marks = tuple(self._phrased(words, [*marks]))
        # The first word's capital says nothing.
        return words, marks, keys, functools.reduce(operator.or_, marks[1:], marks[0] & ~CAPITAL)

    def hear(self, text: str) -> Heard:
        """Return the words of ``text`` and what they are together."""
        return self.heard(self.words(text))

    def _learned(self, token: str) -> list[Word]:
        """Return the words of a token that isn't known."""
        words: list[Word] = []
        for written in WORD.findall(token):
            word = fold(written)
            mark = CAPITAL if written[0].isupper() else 0
            if not word.isalpha():
                mark |= ODD
            if len(word) > LONGEST_WORD:
                mark |= ENDLESS
            words.append((word, mark | self._kinds(word), stem_key(word)))
        if len(words) == 1:
            remember(self._known, token, words[0], listed=words[0][0] in self._words)
        return words

    def _phrased(self, words: tuple[str, ...], marks: list[int]) -> list[int]:
        """Mark the longest phrase at each place: one may be of several kinds."""
        phrases = self._phrases
        for place in [place for place, pair in enumerate(pairwise(words)) if pair in phrases]:
            covered = 0
            for phrase, kind in phrases[words[place], words[place + 1]]:
                end = place + len(phrase)
                if len(phrase) < covered or words[place:end] != phrase:
                    continue
                covered = len(phrase)
                if kind & SILENT:
                    marks[place:end] = [mark & ~KINDS | kind for mark in marks[place:end]]
                    continue
                marks[place] |= kind | GRAMMAR
                for inside in range(place + 1, end):
                    marks[inside] |= GRAMMAR
        return marks

    def entries_in(self, text: str) -> list[tuple[int, str, int]]:
        """Return the entries, in their order, that begin with any letter of ``text``."""
        found = [entry for sign in set(text) for entry in self._by_sign.get(sign, ())]
        found.sort()
        return found

    def only_greets(self, clause: str) -> bool:
        """Return whether nothing is left of an unspaced clause without its courtesies."""
        rest = clause
        for _, entry, kind in self.entries_in(clause):
            if kind & (COURTESY | GRAMMAR):
                rest = rest.replace(entry, "")
        return rest != clause and not any(map(str.isalnum, rest))

    def ballot(self) -> list[str]:
        """Return the single words that give this language away."""
        return [
            entry
            for entry, kind in self._entries
            if kind & (GRAMMAR | COURTESY) and " " not in entry and not entry.endswith("*")
        ]


def _entries(listed: object) -> list[str]:
    text = fold(listed) if isinstance(listed, str) else ""
    return [phrase or word for phrase, word in _ENTRY.findall(text)]


def _plain(entries: Iterable[str]) -> list[str]:
    return [" ".join(WORD.findall(entry)) for entry in entries]


# A few words give no language away, and their titles and streets are shortened all the same.
NEUTRAL: Final = Language(
    {"abbreviations": "av avda dr dra gral mr mrs ms nro num prof sr sra sta sto st"}
)


class _Library(NamedTuple):
    languages: tuple[Language, ...]
    by_code: dict[str, Language]
    by_script: dict[str, Language]
    speakers: dict[str, list[tuple[str, Role, Language]]]  # by their first letter
    votes: dict[str, int]  # of a word, a byte a language
    polled: dict[str, int]  # of a word as written, with a last byte that counts it
    shift: int
    nothing: frozenset[str]
    nothing_more: tuple[str, ...]
    refusals: tuple[str, ...]
    labels: frozenset[str]


@once
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
    votes: dict[str, int] = {}
    for place, language in enumerate(languages):
        for word in set(language.ballot()):
            votes[word] = votes.get(word, 0) + (1 << 8 * place)
    # Where two languages share a prefix, the first of them stands for both.
    speakers: dict[str, list[tuple[str, Role, Language]]] = {}
    for language in (*languages, NEUTRAL):
        for role, prefix in language.speakers.items():
            speakers.setdefault(prefix[:1], []).append((prefix, role, language))
    return _Library(
        languages,
        {language.code: language for language in languages},
        {language.script: language for language in languages if language.script},
        speakers,
        votes,
        {},
        8 * len(languages),
        frozenset(phrase for language in languages for phrase in language.nothing),
        tuple(
            phrase + " " for language in languages for phrase in language.nothing if " " in phrase
        ),
        tuple(phrase for language in languages for phrase in language.refusals),
        frozenset(label for language in languages for label in language.labels),
    )


def speaker_of(line: str) -> tuple[Role | None, str, Language | None]:
    """Return who a summary's line says spoke, what they said, and in whose prefix."""
    for prefix, role, language in library().speakers.get(line[:1], ()):
        if line.startswith(prefix):
            return role, line[len(prefix) :], language
    return None, line, None


def detect(text: str, fallback: Language | None = None) -> Language:
    """Return the language that ``text`` gives away by its script or its commonest words.

    With nothing to go by, ``fallback``; without one, the neutral language. Looks
    at the beginning of the text only, so its cost is bounded.
    """
    shelf = library()
    sample = text[:_VOTING_CHARACTERS]
    return _by_script(sample, shelf) or _elected(_poll(sample, shelf), fallback)


def detect_all(
    texts: Sequence[str], fallback: Language | None = None
) -> tuple[Language, list[Language]]:
    """Return the language of ``texts`` as a whole, and that of each within the whole."""
    shelf = library()
    samples = [text[:_VOTING_CHARACTERS] for text in texts]
    scripts = [_by_script(sample, shelf) for sample in samples]
    polls = [_poll(sample, shelf) for sample in samples]
    written = next((script for script in scripts if script is not None), None)
    whole = _elected(list(map(sum, zip(*polls, strict=True))), fallback or written)
    each = [script or _elected(poll, whole) for script, poll in zip(scripts, polls, strict=True)]
    return whole, each


def _poll(sample: str, shelf: _Library) -> list[int]:
    """Return the votes for each language, and last the number of words that were asked."""
    tokens = sample.split()
    votes = [*map(shelf.polled.get, tokens)]
    if None in votes:
        for place, token in enumerate(tokens):
            if votes[place] is None:
                votes[place] = _asked(token, shelf)
    # A sample has at most a word every two characters, so no byte runs over.
    return [*sum(cast("list[int]", votes)).to_bytes(len(shelf.languages) + 1, "little")]


def _asked(token: str, shelf: _Library) -> int:
    words = WORD.findall(fold(token))
    votes = len(words) << shelf.shift
    for word in words:
        votes += shelf.votes.get(word, 0)
    if len(words) == 1:
        remember(shelf.polled, token, votes, listed=words[0] in shelf.votes)
    return votes


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
    if sample.isascii() or not _SCRIPT.search(sample):
        return None
    if _KANA.search(sample):
        return shelf.by_script.get("Kana")
    letters = len(sample)
    for script, pattern in _SCRIPTS:
        if len(pattern.findall(sample)) * 4 > letters:
            return shelf.by_script.get(script)
    return None
