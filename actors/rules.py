"""What each language's ways of saying a fact are: patterns read from data, once.

One TOML file a language, in the folder `deriving`, beside one of what is written
alike in all. A rule has the words that must be there before its pattern is tried,
so a sentence that says nothing about anybody costs a look at its words. Patterns
are matched against text without accents, a letter for a letter, so that what is
found can be kept as it was written.
"""

from __future__ import annotations

import importlib.resources
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from interturn.actors.once import once

_ENTRY: Final = re.compile(r'"([^"]+)"|(\S+)')
_PIECE: Final = re.compile(r"\{([a-z_-]+)\}")
_HEAD: Final = 4  # letters of a word's beginning that a rule may wait for
_WORD: Final = re.compile(r"[a-z0-9'ß]+")
_NEVER: Final = re.compile(r"(?!)")


def _flattening() -> dict[int, str]:
    table = {ord("’"): "'", ord("‘"): "'", ord("´"): "'"}  # noqa: RUF001
    for code in (*range(0x00C0, 0x0250), *range(0x1E00, 0x1F00)):
        base = unicodedata.normalize("NFD", chr(code))[0]
        if base.isascii():
            table[code] = base
    return table


_FLAT: Final = _flattening()


def flat(text: str) -> str:
    """Return NFC ``text`` without accents, in its own case, a letter for a letter."""
    return text if text.isascii() else text.translate(_FLAT)


def words_of(plain: str) -> set[str]:
    """Return the words of a flat text, as rules wait for them."""
    words = set(_WORD.findall(plain.lower()))
    if "@" in plain:
        words.add("@")
    return words


class Rule(NamedTuple):
    """One way to say one thing.

    Attributes:
        slot: what it is about; ``{v}`` and ``{n}`` stand for what the pattern found.
        say: the pattern; what it matches is kept.
        tongue: the language it belongs to.
        shape: how the fact reads where the words alone don't say what they are about.
        unless: what may not stand before.
        keep: ``"match"`` or ``"sentence"``.
        weak: it only fills a slot that is empty.
        split: several things of which each is a fact.
        clip: what is found ends where another thing begins.
        adds: it says more of what another rule of the slot found.
        extends: an address goes on behind it.
        asked: it holds in a question too.
        negated: it is a denial that says something.
        joke: laughter beside it takes it back.
        serious: what laughter beside it doesn't take back.
        denies: it says that something is no longer so.
        digits: the fewest that the value must have.
    """

    slot: str
    say: re.Pattern[str]
    tongue: Tongue
    shape: str
    unless: re.Pattern[str]
    keep: str
    weak: bool
    split: bool
    clip: bool
    adds: bool
    extends: bool
    asked: bool
    negated: bool
    joke: bool
    serious: re.Pattern[str]
    denies: bool
    digits: int


class Ask(NamedTuple):
    """A question of the agent and what its answer looks like."""

    slot: str
    ask: re.Pattern[str]
    answer: re.Pattern[str]
    digits: int
    subslot: bool


class Tongue:
    """How one language hedges, denies, asks and takes back; data, never changed."""

    def __init__(self, data: Mapping[str, object], shared: Mapping[str, str]) -> None:
        self.code = str(data["code"])
        self._pieces = dict(shared)
        for name, entries in _table(data.get("words")).items():
            self._pieces[name] = _alternatives(entries)
        for name, piece in _table(data.get("pieces")).items():
            self._pieces[name] = self._filled(flat(str(piece)))
        self.questions = frozenset(_entries(data.get("questions")))
        self.hedges = self._worded(data.get("hedges"))
        self.ifs = self._worded(data.get("ifs"))
        self.first_ifs = self.pattern(data.get("first_ifs"))
        self.negations = self._worded(data.get("negations"), r"(?!,)")
        self.doubts = self._worded(data.get("doubts"))
        self.arrived = self.pattern(data.get("arrived"))
        self.passing = self.pattern(data.get("passing"))
        self.reported = self.pattern(data.get("reported"))
        self.jokes = self.pattern(data.get("jokes"))
        self.laughs = self.pattern(data.get("laughs"))
        self.because = self.pattern(data.get("because"))
        self.jests = frozenset(_entries(data.get("jests")))
        self.days = frozenset(_entries(data.get("days")))
        self.doubting = frozenset(_WORD.findall(" ".join(_entries(data.get("doubts")))))
        self.supposing = frozenset(_entries(data.get("ifs")))
        self.commands = frozenset(_entries(data.get("commands")))
        self.injections = self.pattern(data.get("injections"))
        self.stops = self.pattern(data.get("stops"))
        self.articles = self.pattern(data.get("articles"))
        self.both = self.pattern(data.get("and"))
        self.leads = self.pattern(data.get("leads"))
        self.unknowing = self.pattern(data.get("unknowing"))
        self.assents = self.pattern(data.get("assents"))
        retract = _table(data.get("retract"))
        self.retract_gate = frozenset(_entries(retract.get("gate")))
        self.erase = self.pattern(retract.get("erase"))
        self.ceased = self.pattern(retract.get("ceased"))
        self.none = self.pattern(retract.get("none"))
        self.elided = self.pattern(retract.get("elided"))
        self.nothing = frozenset(_entries(retract.get("nothing")))
        self.nothing_else = self._worded(retract.get("only"))
        self.denying = frozenset(_WORD.findall(" ".join(_entries(data.get("negations")))))
        self.nouns = {
            word: slot
            for slot, entries in _table(data.get("nouns")).items()
            for word in _entries(entries)
        }
        kin = _table(data.get("kin"))
        self.who = {
            word: who
            for who, entries in _table(kin.get("who")).items()
            for word in _entries(entries)
        }
        self.says = {
            word: about
            for about, entries in _table(kin.get("says")).items()
            for word in _entries(entries)
        }
        self.lasting = {
            verb: self.pattern(said) for verb, said in _table(kin.get("lasting")).items()
        }
        self.mine = frozenset(_entries(kin.get("mine")))
        self.they = frozenset(_entries(kin.get("they")))
        self.rules = [
            (_entries(rule.get("when")), self._rule(rule)) for rule in _tables(data.get("rule"))
        ]
        self.asks = tuple(
            Ask(
                str(ask["slot"]),
                self.pattern(ask["ask"]),
                self.pattern(ask["answer"]),
                _whole(ask.get("digits")),
                bool(ask.get("subslot")),
            )
            for ask in _tables(data.get("ask"))
        )

    def pattern(self, text: object) -> re.Pattern[str]:
        """Return a pattern with its pieces filled in; one that never matches for nothing."""
        if not text:
            return _NEVER
        return re.compile(self._filled(flat(str(text))), re.IGNORECASE)

    def _filled(self, text: str) -> str:
        return _PIECE.sub(lambda piece: self._pieces[piece.group(1)], text)

    def _worded(self, entries: object, tail: str = "") -> re.Pattern[str]:
        if not entries:
            return _NEVER
        return re.compile(rf"\b{_alternatives(entries)}\b{tail}", re.IGNORECASE)

    def _rule(self, data: Mapping[str, object]) -> Rule:
        return Rule(
            slot=str(data["slot"]),
            say=self.pattern(data["say"]),
            tongue=self,
            shape=str(data.get("as", "")),
            unless=self.pattern(data.get("unless")),
            keep=str(data.get("keep", "match")),
            weak=bool(data.get("weak")),
            split=bool(data.get("split")),
            clip=bool(data.get("clip")),
            adds=bool(data.get("adds")),
            extends=bool(data.get("extends")),
            asked=bool(data.get("asked")),
            negated=bool(data.get("negated")),
            joke=bool(data.get("joke")),
            serious=self.pattern(data.get("serious")),
            denies=bool(data.get("denies")),
            digits=_whole(data.get("digits")),
        )


class Shelf:
    """All rules, by the words they wait for."""

    def __init__(self, tongues: Iterable[Tongue]) -> None:
        self.tongues = {tongue.code: tongue for tongue in tongues}
        self._rules: list[Rule] = []
        self._by_word: dict[str, list[int]] = {}
        self._by_head: dict[str, list[tuple[str, int]]] = {}
        for tongue in self.tongues.values():
            for when, rule in tongue.rules:
                place = len(self._rules)
                self._rules.append(rule)
                for word in when:
                    if word.endswith("*"):
                        heads = self._by_head.setdefault(word[:_HEAD], [])
                        heads.append((word[:-1], place))
                    else:
                        self._by_word.setdefault(word, []).append(place)

    def waiting(self, words: set[str]) -> list[Rule]:
        """Return the rules that wait for any of ``words``, in their order."""
        places: set[int] = set()
        for word in words & self._by_word.keys():
            places.update(self._by_word[word])
        for head in {word[:_HEAD] for word in words} & self._by_head.keys():
            for beginning, place in self._by_head[head]:
                if any(word.startswith(beginning) for word in words):
                    places.add(place)
        return [self._rules[place] for place in sorted(places)]


@once
def shelf() -> Shelf:
    """Return every rule there is, read from the package once."""
    folder = importlib.resources.files("interturn.actors") / "deriving"
    data: list[dict[str, object]] = []
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            read = tomllib.loads(file.read_text(encoding="utf-8"))
            if "code" in read:
                data.append(read)
    shared = next(_table(read.get("pieces")) for read in data if not read["code"])
    pieces = {name: str(piece) for name, piece in shared.items()}
    return Shelf(Tongue(read, pieces) for read in data)


def _table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _tables(value: object) -> list[dict[str, object]]:
    return value if isinstance(value, list) else []


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _entries(listed: object) -> list[str]:
    text = flat(listed).lower() if isinstance(listed, str) else ""
    return [phrase or word for phrase, word in _ENTRY.findall(text)]


def _alternatives(listed: object) -> str:
    # The longest first, so that a phrase isn't taken for its first word.
    entries = sorted(set(_entries(listed)), key=lambda entry: (-len(entry), entry))
    return "(?:" + "|".join(re.escape(entry).replace(r"\*", r"\w*") for entry in entries) + ")"
