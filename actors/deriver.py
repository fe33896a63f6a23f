"""The offline deriver: what a turn says about the customer, found by patterns.

A fact is worth having for months and wrong for as long, so what isn't said
plainly isn't taken: a question, a guess, a denial, a quotation, a joke, what
somebody else says or is. What is taken is kept as it was said, the part that
says it and no more; an answer that makes no sense alone stands behind its
question.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from interturn.actors.answers import answer, last_question
from interturn.actors.book import equal, folded_slot
from interturn.actors.facts import Fact, FactChange
from interturn.actors.guard import TRIM, Guard
from interturn.actors.language import Language, detect
from interturn.actors.message import Message
from interturn.actors.pace import breathe
from interturn.actors.private import MASK, masked
from interturn.actors.prose import HEARD, prose
from interturn.actors.relatives import Relatives
from interturn.actors.retracting import family, in_jest, stem, taken_back
from interturn.actors.rules import Rule, flat, shelf, words_of
from interturn.actors.sayings import Found, bare_address, find
from interturn.actors.sentences import sentences
from interturn.actors.statements import statements

MOST_FACTS: Final = 16
"""Slots that one message may fill."""

_SHORT: Final = 40  # characters of a sentence that laughter takes back whole
_ALWAYS: Final = ("en", "es", "")
_SHORTEST: Final = 2
# Who poses as the one that gives orders, or closes what quotes them.
_POSING: Final = re.compile(
    r"</\w[\w-]*>|^\W{0,4}(?:system|assistant|developer|sistema|asistente)\b\W{0,3}:", re.IGNORECASE
)
_EMOJI: Final = "\u2000"  # from here on signs, and emoji among them


class OfflineDeriver:
    """Finds the customer's facts in a turn with no network and no model."""

    async def derive(self, turn: Sequence[Message], known: Sequence[Fact]) -> Sequence[FactChange]:
        """Return facts to set and to retract; the visitor's words are the only evidence."""
        return derived(turn, known)


def derived(turn: Sequence[Message], known: Sequence[Fact]) -> list[FactChange]:
    """Return what the visitor's messages in ``turn`` say about the customer.

    An agent's message before a visitor's is the question that an answer needs, and no
    evidence: so what the agent said just before a turn may be given with it. ``known``
    lets a statement update, refine or take back what stands.
    """
    changes: list[FactChange] = []
    question = ""
    for place, message in enumerate(turn):
        if message.role == "agent":
            question = message.text
            continue
        hearing = _Hearing(message, question, known)
        said = hearing.changes()
        changes += said
        changes += hearing.notes(turn[place - 1 : place] if question else (), message, said)
        question = ""
    return changes


class _Hearing:
    """One message of the visitor, while it is read."""

    def __init__(self, message: Message, question: str, known: Sequence[Fact]) -> None:
        self._message = message
        self._known = known
        self._by_slot: dict[str, Fact] | None = None
        self._question = question[-HEARD:]
        self.text = text = masked(prose(message.text), self._question)
        self.language: Language = detect(text, detect(self._question) if question else None)
        everything = shelf().tongues
        # A few words may be of any language; mixed speech is of one and of these.
        codes = dict.fromkeys((self.language.code, *_ALWAYS)) if self.language.code else everything
        self.tongues = [everything[code] for code in codes if code in everything]
        self.sentences = sentences(text, self.language)
        self.found: dict[str, FactChange] = {}
        self.relatives = Relatives()
        self._plains = [flat(sentence) for sentence in self.sentences]
        self._words = [words_of(plain) for plain in self._plains]
        self._slotted: set[int] = set()  # the sentences that have their fact under a slot
        self._housed = -_SHORTEST  # the last sentence that said where they live

    def changes(self) -> list[FactChange]:
        """Return what stands under a slot of its own, and what is taken back."""
        retracted = self._in_jest()
        ordered, heard = False, 0
        for place, plain in enumerate(self._plains):
            breathe()
            words = self._words[place]
            rules = [rule for rule in shelf().waiting(words) if rule.tongue in self.tongues]
            speaks = self.relatives.listens(words, self.tongues)
            takes_back = any(
                not words.isdisjoint(tongue.retract_gate)
                or (rules and not words.isdisjoint(tongue.denying))
                for tongue in self.tongues
            )
            if not (rules or speaks or takes_back or self._housed == place - 1):
                continue
            guard = Guard(self.sentences[place], plain, self.tongues)
            found = self._found_in(rules, guard, place)
            denying = takes_back or any(fact.denies for fact in found)
            gone, only = taken_back(guard, rules, found, self._held()) if denying else ([], False)
            if only:
                self._slotted.add(place)
            if not (found or gone or speaks):
                continue
            # "It was a joke, I'm not": what is denied isn't so, whatever was a joke.
            if self._unserious(place):
                retracted += self._give_up(gone)
                continue
            # Whoever has just tried to give orders isn't believed who they are.
            ordered = ordered or any(map(self._orders, range(heard, place)))
            heard = place
            if self._orders(place):
                continue
            if ordered:
                found = [fact for fact in found if family(fact.slot) not in _CLAIMS]
            retracted += self._give_up(gone)
            self._take(place, [fact for fact in found if not fact.denies])
            if speaks and self.relatives.hear(guard, self.tongues):
                self._slotted.add(place)
        self._answer()
        self._arrivals()
        for slot, text, refines in self.relatives.told(self._standing, self.tongues):
            self._set(slot, text, refines=refines)
        # What is said anew needs no taking back: it takes the former's place.
        kept = [change for change in retracted if change.erases or change.slot not in self.found]
        return [*kept, *list(self.found.values())[:MOST_FACTS]]

    def _held(self) -> list[Fact]:
        """Return what stands, what this message said so far in its place."""
        at, source = self._message.at, ("", self._message.seq)
        said = [
            Fact("", change.slot, change.text, at, at, 1, source) for change in self.found.values()
        ]
        return [*(fact for fact in self._known if fact.slot not in self.found), *said]

    def _in_jest(self) -> list[FactChange]:
        if not self._plains or not self._known or not self._jests(0):
            return []
        return self._give_up(in_jest(self._plains[0], self.tongues, self._known, self._message))

    def _arrivals(self) -> None:
        """Take how something that the customer had ordered came, beside the order."""
        orders = [fact for fact in self._known if _ORDER.fullmatch(fact.slot)]
        for place, plain in enumerate(self._plains if orders else ()):
            if place in self._slotted or plain.endswith("?"):
                continue
            if not any(tongue.arrived.search(plain) for tongue in self.tongues):
                continue
            stems = {stem(word) for word in _telling(plain) if len(word) > _SHORTEST + 1}
            for fact in orders:
                named = {stem(word) for word in _telling(fact.text)}
                if stems & named and not self._unserious(place):
                    self._slotted.add(place)
                    self._set(f"{fact.slot}:state", self.sentences[place].strip(TRIM))
                    break

    def _found_in(self, rules: Sequence[Rule], guard: Guard, place: int) -> list[Found]:
        found = find(rules, guard)
        if not found and place and self._housed == place - 1:
            found = bare_address(guard.sentence, guard.plain)
        if any(fact.slot == "home" for fact in found):
            self._housed = place
        return found

    def _give_up(self, gone: Iterable[FactChange]) -> list[FactChange]:
        """Return what must be retracted; what is only replaced is found."""
        retracted: list[FactChange] = []
        for change in gone:
            if change.kind == "set":
                self.found[change.slot] = change
                continue
            retracted.append(change)
            self.found.pop(change.slot, None)
        return retracted

    def notes(
        self, before: Sequence[Message], message: Message, said: Iterable[FactChange]
    ) -> list[FactChange]:
        """Return what else is worth keeping, in the visitor's words, under no slot of its own."""
        if not any(map(str.isalpha, self.text)):
            return []
        told = [change.text for change in said if change.kind == "set"]
        noted = self._noted(before, message, self._slotted, told)
        if not noted:
            return []
        # Only where there is something to note is it worth asking what must not be noted.
        places = range(len(self._plains))
        # Behind an order nothing is believed.
        ordered = next((place for place in places if self._orders(place)), len(places))
        withheld = {place for place in places if place >= ordered or self._passing(place)}
        if not withheld <= self._slotted:
            noted = self._noted(before, message, withheld | self._slotted, told)
        return [
            FactChange("set", f"note:{fingerprint_of(note)}", note)
            for note in noted
            if MASK not in note
        ]

    def _noted(
        self,
        before: Sequence[Message],
        message: Message,
        withheld: set[int],
        told: Sequence[str],
    ) -> list[str]:
        text = self.text
        if withheld:
            text = "\n".join(
                sentence for place, sentence in enumerate(self.sentences) if place not in withheld
            )
        if not text:
            return []
        heard = msgspec.structs.replace(message, text=text)
        # The question is answered by what was said first.
        return statements([heard] if 0 in withheld else [*before, heard], told=told)

    def _passing(self, place: int) -> bool:
        """Return whether a sentence is a joke, a guess, a quotation, or of these days only."""
        if self._unserious(place):
            return True
        plain, words = self._plains[place], self._words[place]
        for tongue in self.tongues:
            if "…" in plain and tongue.reported.search(plain):
                return True
            if not tongue.doubting.isdisjoint(words) and tongue.doubts.search(plain):
                return True
            if not tongue.days.isdisjoint(words) and tongue.passing.search(plain):
                return True
            if len(plain) <= _SHORT and tongue.laughs.search(plain):
                return True
            if tongue.supposing.isdisjoint(words):
                continue
            supposed = tongue.ifs.search(plain)
            if supposed and tongue.first_ifs.match(plain[supposed.end() :].lstrip()):
                return True
        return False

    def _standing(self, slot: str) -> Fact | None:
        if self._by_slot is None:
            self._by_slot = {fact.slot: fact for fact in self._known}
        return self._by_slot.get(slot)

    def _orders(self, place: int) -> bool:
        """Return whether a sentence gives orders to whoever remembers, or claims a right to."""
        plain, words = self._plains[place], self._words[place]
        return bool(_POSING.search(plain)) or any(
            tongue.injections.search(plain)
            for tongue in self.tongues
            if not (tongue.commands and tongue.commands.isdisjoint(words))
        )

    def _unserious(self, place: int) -> bool:
        """Return whether a sentence is a joke, by its own words or by those that follow."""
        if self._jests(place):
            return True
        following = place + 1
        return following < len(self._plains) and self._jests(following, only_begins=True)

    def _jests(self, place: int, *, only_begins: bool = False) -> bool:
        plain, words = self._plains[place], self._words[place]
        drawn = max(plain) >= _EMOJI
        for tongue in self.tongues:
            if tongue.jests and not drawn and tongue.jests.isdisjoint(words):
                continue
            joke = tongue.jokes.search(plain)
            if joke and (not only_begins or joke.start() < _SHORTEST):
                return True
        return False

    def _take(self, place: int, found: Sequence[Found]) -> None:
        if any(family(fact.slot) not in _LASTING for fact in found):
            # A note of it would still say so when the fact has long changed.
            self._slotted.add(place)
        for fact in found:
            self._take_one(folded_slot(fact.slot), fact)

    def _take_one(self, slot: str, fact: Found) -> None:
        if fact.adds:
            before = self.found.get(slot)
            standing = self._standing(slot)
            if before is not None:
                if flat(fact.text).lower() in flat(before.text).lower():
                    return
                self._set(slot, f"{before.text}, {fact.text}", refines=before.refines)
                return
            if slot == "home" and standing and not any(map(str.isdigit, standing.text)):
                self._set(slot, f"{standing.text}, {fact.text}", refines=True)
                return
        if fact.weak and (slot in self.found or self._standing(slot)):
            return
        self._set(slot, fact.text)

    def _set(self, slot: str, text: str, *, refines: bool = False) -> None:
        if not text or MASK in text:
            return
        standing = self._standing(slot)
        if standing is not None and not refines and not equal(standing.text, text):
            new, old = _telling(text), _telling(standing.text)
            if new < old and len(old - new) < _FULLER and not self._denies(old - new):
                # Said again in fewer words: the fuller statement stands, and is seen again.
                text = standing.text
            refines = old < new and not self._denies(new - old)
        self.found[slot] = FactChange("set", slot, text, refines=refines)

    def _denies(self, words: set[str]) -> bool:
        """Return whether words that only one of two statements has make it the contrary."""
        return any(tongue.negations.search(" ".join(words)) for tongue in self.tongues)

    def _answer(self) -> None:
        """Take what answers the agent's question, beside the question where it needs it."""
        question = last_question(self._question, self.language)
        answered = (
            answer(question, self.sentences, self._plains, self.tongues) if question else None
        )
        if answered is None:
            return
        ask, (place, facts) = answered
        if self._unserious(place) or self._orders(place):
            return
        if any(slot == ask.slot or slot.startswith(ask.slot + ":") for slot in self.found):
            return  # the answer said it plainly
        self._slotted.add(place)
        for slot, text in facts:
            self._set(folded_slot(slot), text)


_FULLER: Final = 12  # words that a fuller statement may have more
_ORDER: Final = re.compile(r"order:[^:]+")
# What doesn't change by being said otherwise, so that a note of it can't become untrue.
_LASTING: Final = frozenset({"taste", "favourite", "plays", "origin", "studies", "siblings"})
_CLAIMS: Final = frozenset({"name", "nickname", "customer-number", "job", "plan", "language"})


def _telling(text: str) -> set[str]:
    return set(re.findall(r"[\w@]+", flat(text).lower()))


def fingerprint_of(text: str) -> str:
    """Return what a note is known by: the same for the same words in any order."""
    words = sorted({word[:6] for word in _telling(text) if len(word) > _SHORTEST})
    return hashlib.blake2b(" ".join(words).encode(), digest_size=5).hexdigest()
