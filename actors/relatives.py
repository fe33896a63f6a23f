"""What a visitor says of the people around them, which is never about the visitor.

"My daughter is celiac" is worth keeping, as hers. Each person has one fact, a
list of what was said of them: what is said anew of the same takes the former's
place, the rest stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from interturn.actors.facts import Fact
from interturn.actors.guard import Guard
from interturn.actors.rules import Tongue, flat

_WORD: Final = re.compile(r"[A-Za-z0-9'@-]+")
_ENDS: Final = re.compile(r"[;.!?()\n]")
_BREAK: Final = re.compile(r"[,;:.!?()\n]")
_SEPARATOR: Final = "; "
_SAID: Final = 90  # characters of one saying
_TOLD: Final = 300  # characters of all
_TRIM: Final = " \t,;:.!?-\"'"
_NAME: Final = re.compile(
    r"^[, ]*(?:(?P<named>(?:que )?se llama|llamad[oa]|(?:is )?named|(?:is )?called) "
    r"|la señora |el señor |doña |don )?((?-i:[A-ZÁÉÍÓÚÑ][\w'-]+))"
)
_NO: Final = re.compile(r"\b(?:ya|no|not|longer|never|nao|nicht|non|pas|ne|mai) ")
# What is said of somebody ends what was said under these.
_ENDED: Final = {
    "lost": ("is", "has", "health", "home", "job", "needs", "wants", "likes", "takes", "uses"),
    "cured": ("has", "health"),
}


class _Person(NamedTuple):
    who: str
    called: str


class Relatives:
    """The people of one message: who was spoken of last, and what was said of each."""

    def __init__(self) -> None:
        self._last: _Person | None = None
        self._said: dict[str, tuple[str, dict[str, str]]] = {}

    def listens(self, words: set[str], tongues: Sequence[Tongue]) -> bool:
        """Return whether a sentence of these words may speak of somebody."""
        named = {word.removesuffix("'s") for word in words}
        if any(not words.isdisjoint(tongue.mine) for tongue in tongues) and any(
            not named.isdisjoint(tongue.who) for tongue in tongues
        ):
            return True
        return self._last is not None and any(
            not words.isdisjoint(tongue.they) for tongue in tongues
        )

    def hear(self, guard: Guard, tongues: Sequence[Tongue]) -> bool:
        """Take what a sentence says of whom it names, or of whom was named before it.

        Returns whether it said anything that stays.
        """
        if guard.asks_all:
            return False
        plain = guard.plain
        before = sum(len(said) for _, said in self._said.values())
        words = [(word.group().lower(), word.start(), word.end()) for word in _WORD.finditer(plain)]
        subject: _Person | None = None
        place = 0
        while place < len(words):
            word, _, end = words[place]
            named = self._named(words, place, guard, tongues)
            if named is not None:
                subject, place = named
                self._last = subject
                continue
            tongue = next((tongue for tongue in tongues if word in tongue.says), None)
            if self._last is not None and any(word in spoken.they for spoken in tongues):
                subject = self._last
            elif subject is not None and word in _FIRST:
                subject = None
            elif subject is not None and tongue is not None:
                place = self._say(subject, tongue, guard, words, place)
                continue
            if _ENDS.search(plain, end, words[place + 1][1] if place + 1 < len(words) else end):
                subject = None
            place += 1
        return sum(len(said) for _, said in self._said.values()) > before

    def _named(
        self,
        words: Sequence[tuple[str, int, int]],
        place: int,
        guard: Guard,
        tongues: Sequence[Tongue],
    ) -> tuple[_Person, int] | None:
        sentence = guard.sentence
        if place + 1 >= len(words):
            return None
        mine, kin = words[place][0], words[place + 1][0].removesuffix("'s")
        if not any(mine in tongue.mine for tongue in tongues):
            return None
        for tongue in tongues:
            who = tongue.who.get(kin)
            if who is None:
                continue
            called = sentence[words[place][1] : words[place + 1][2]]
            if words[place + 1][0].endswith("'s"):
                # What is theirs, or "is" drawn together: "my wife's vegan".
                self._contracted(_Person(who, called[:-2]), tongue, guard, words[place + 1][2])
                return None
            name = _NAME.match(sentence[words[place + 1][2] :])
            after = place + 2
            if name and name.group(2).endswith(("'s", "’s")):  # noqa: RUF001
                return None
            if name:
                called = f"{called} {name.group(2)}"
                # A child or a friend may be one of several; there is one mother.
                if who not in _ONLY:
                    who = f"{who}:{flat(name.group(2)).lower()}"
                through = words[place + 1][2] + name.end()
                while after < len(words) and words[after][1] < through:
                    after += 1
            person = _Person(who, called[:1].lower() + called[1:])
            self._name(person, name)
            return person, after
        return None

    def _contracted(self, person: _Person, tongue: Tongue, guard: Guard, start: int) -> None:
        """Take what follows "'s" for what somebody is, if that is what it can only be."""
        stop = _BREAK.search(guard.plain, start)
        end = stop.start() if stop else len(guard.plain)
        clip = tongue.stops.search(guard.plain, start, end)
        text = f"is {guard.sentence[start : clip.start() if clip else end].strip(_TRIM)}"
        lasting = tongue.lasting.get("is")
        if lasting is not None and lasting.match(flat(text)) and not guard.doubtful(start):
            called = person.called[:1].lower() + person.called[1:]
            self._file(_Person(person.who, called), _kept_as("is", text), text)

    def _say(
        self,
        person: _Person,
        tongue: Tongue,
        guard: Guard,
        words: Sequence[tuple[str, int, int]],
        place: int,
    ) -> int:
        """Take one saying and return the place of the word after it."""
        sentence, plain = guard.sentence, guard.plain
        verb, start, _ = words[place]
        begin = start
        if place and words[place - 1][0] in _BEFORE_VERB:
            begin = words[place - 1][1]
        stop = _BREAK.search(plain, start)
        end = stop.start() if stop else len(plain)
        clip = tongue.stops.search(plain, start, end)
        end = clip.start() if clip else end
        after = place + 1
        while after < len(words) and words[after][1] < end:
            if words[after][0] in _FIRST:
                end = words[after][1]
                break
            after += 1
        text = sentence[begin:end].strip(_TRIM)
        about = tongue.says[verb]
        lasting = tongue.lasting.get(about)
        stays = lasting is None or lasting.match(flat(text)) is not None
        if not stays:
            return place + 1
        tells = len(text) > len(verb) + 2 or about in _ENDED
        if tells and not guard.doubtful(start):
            self._file(person, _kept_as(about, text), text)
        return after

    def _name(self, person: _Person, name: re.Match[str] | None) -> None:
        if name and name["named"]:
            self._file(person, "name", name.group().strip(_TRIM))

    def _file(self, person: _Person, about: str, text: str) -> None:
        called, said = self._said.setdefault(person.who, (person.called, {}))
        said[about] = text[:_SAID]
        if len(person.called) > len(called):
            self._said[person.who] = (person.called, said)

    def told(
        self, standing: Callable[[str], Fact | None], tongues: Sequence[Tongue]
    ) -> Iterator[tuple[str, str, bool]]:
        """Yield slot, text and whether it only says more, for each person spoken of."""
        for who, (name, said) in self._said.items():
            called = name
            slot = f"relative:{who}"
            fact = standing(slot)
            items: dict[str, str] = {}
            if fact is not None:
                before, _, listed = fact.text.partition(": ")
                called = before if len(before) >= len(called) else called
                for item in listed.split(_SEPARATOR):
                    items[_about(item, tongues)] = item
            refines = items.keys().isdisjoint(said) or all(
                flat(items.get(about, text)).lower() == flat(text).lower()
                for about, text in said.items()
            )
            over = {kind for about in said for kind in _ENDED.get(about, ())}
            refines = refines and not over
            items = {about: item for about, item in items.items() if _kind(about) not in over}
            items |= said
            texts = list(items.values())
            while len(texts) > 1 and len(_SEPARATOR.join(texts)) > _TOLD:
                del texts[0]
            yield slot, f"{called}: {_SEPARATOR.join(texts)}", refines


def _about(item: str, tongues: Sequence[Tongue]) -> str:
    """Return what a saying is about, as `Relatives` files it."""
    for word in _WORD.findall(flat(item).lower())[:3]:
        for tongue in tongues:
            about = tongue.says.get(word)
            lasting = tongue.lasting.get(about) if about else None
            if about and (lasting is None or lasting.match(flat(item))):
                return _kept_as(about, item)
    return item


def _kept_as(about: str, text: str) -> str:
    """Return what a saying takes the place of: of what it says or denies, or of its kind."""
    plain = flat(text).lower()
    if about == "is":
        return f"is {_NO.sub('', plain)}"
    return "has age" if about == "has" and _YEARS.search(plain) else about


def _kind(about: str) -> str:
    return about.partition(" ")[0] if about != "has age" else about


_FIRST: Final = frozenset({"yo", "i", "i'm", "i've", "im", "eu", "je", "ich", "io", "jo"})
_YEARS: Final = re.compile(r"\b(?:anos?|meses|years?|months?|ans|jahre|anni|anys)\b")
_BEFORE_VERB: Final = frozenset(
    {
        "no",
        "ha",
        "han",
        "has",
        "esta",
        "estan",
        "is",
        "era",
        "se",
        "le",
        "les",
        "doesn't",
        "not",
        "n'",
        "nao",
        "non",
        "ne",
        "lo",
    }
)
_ONLY: Final = frozenset(
    {
        "mother",
        "father",
        "parents",
        "wife",
        "husband",
        "partner",
        "children",
        "siblings",
        "grandmother",
        "grandfather",
        "boss",
        "mother-in-law",
        "father-in-law",
    }
)
