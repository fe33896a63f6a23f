"""What a sentence takes back: asked to be forgotten, no longer so, never so, or said in jest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from interturn.actors.facts import Fact, FactChange
from interturn.actors.guard import TRIM, Guard
from interturn.actors.message import Message
from interturn.actors.rules import Rule, Tongue, flat
from interturn.actors.sayings import Found, find

_SHORTEST: Final = 3  # letters of a word that tells one thing from another
_VERB: Final = 3  # letters that the forms of a verb share
_BARE: Final = 3  # words beside "just kidding" that say nothing else
# What one may have no more, whatever verb said that one had it.
_OWNED: Final = frozenset({"pet", "vehicle", "device", "plan", "medicine", "children"})
_NOT_OWN: Final = frozenset({"relative", "note"})


def family(slot: str) -> str:
    """Return what a slot is about, without which of several: ``pet`` of ``pet:nube``."""
    return slot.partition(":")[0]


def stem(word: str) -> str:
    """Return the beginning that the forms of a word share."""
    return word[:5]


def taken_back(
    guard: Guard, rules: Sequence[Rule], found: Sequence[Found], known: Sequence[Fact]
) -> tuple[list[FactChange], bool]:
    """Return what a sentence takes back of ``known``, and whether it says no more than that."""
    gone: list[FactChange] = []
    only = False
    for tongue in guard.tongues:
        for match in tongue.erase.finditer(guard.plain):
            only = True
            if guard.asked(match.start()) or guard.denied(match.start()):
                continue
            words = re.findall(r"[\w-]+", match.group("what").lower())
            slots = dict.fromkeys(map(tongue.nouns.get, words))
            gone += [FactChange("retract", slot, erases=True) for slot in slots if slot]
        for match in tongue.ceased.finditer(guard.plain):
            only = True
            if not guard.asked(match.start()):
                gone += _ceased(match, guard, tongue, known)
        for match in tongue.none.finditer(guard.plain):
            slot = tongue.nouns.get(match.group("what").lower())
            if slot and not guard.asked(match.start()) and not guard.doubtful(match.start()):
                gone.append(FactChange("retract", slot))
        elided = tongue.elided.search(guard.plain)
        if elided:
            gone += _without(known, _stems(elided.group("what")))
    denied = list(_denied(guard, rules, found, known))
    return gone + denied, only or bool(denied)


def in_jest(
    plain: str, tongues: Sequence[Tongue], known: Sequence[Fact], message: Message
) -> list[FactChange]:
    """Return what takes back what the message before taught, if a sentence says it was a joke.

    It has to say nothing else, so that nobody loses what a joke in passing stands beside.
    """
    for tongue in tongues:
        joke = tongue.jokes.search(plain)
        if joke is None:
            continue
        around = tongue.laughs.sub(" ", f"{plain[: joke.start()]} {plain[joke.end() :]}")
        if len(re.findall(r"\w+", around)) > _BARE:
            return []
        before = max(known, key=lambda fact: (fact.last_seen, fact.source[1]), default=None)
        # The visitor's message before this one has the agent's answer between.
        if before is None or before.source[1] != message.seq - 2:
            return []
        return [
            FactChange("set", fact.slot, fact.was, refines=True)
            if fact.was
            else FactChange("retract", fact.slot)
            for fact in known
            if fact.source == before.source and (fact.was or fact.sightings == 1)
        ]
    return []


def _denied(
    guard: Guard, rules: Sequence[Rule], found: Sequence[Found], known: Sequence[Fact]
) -> Iterator[FactChange]:
    """Yield what a sentence denies: what it would say without its "not", and what a rule says."""
    said = {fact.slot for fact in found if not fact.denies}
    for fact in (*[fact for fact in found if fact.denies], *_affirmed(guard, rules)):
        if fact.slot in said:
            continue
        kind, _, value = fact.slot.partition(":")
        of_kind = [held for held in known if family(held.slot) == kind]
        everything = any(value in tongue.nothing for tongue in guard.tongues)
        stems = _stems(value or fact.text.partition(" ")[2] or fact.text)
        yield from _without(of_kind, frozenset() if everything else stems, all_=everything)


def _affirmed(guard: Guard, rules: Sequence[Rule]) -> list[Found]:
    """Return what a sentence would say if it said no nowhere."""
    kept, place = [], 0
    spans = sorted(
        no.span()
        for tongue in guard.tongues
        for no in tongue.negations.finditer(guard.plain)
        if not guard.asked(no.start()) and not tongue.nothing_else.match(guard.plain, no.end())
    )
    for start, end in spans:
        kept.append(slice(place, start))
        place = end + len(guard.plain[end:]) - len(guard.plain[end:].lstrip(" "))
    if not place:
        return []
    kept.append(slice(place, None))
    sentence, plain = (
        "".join(text[span] for span in kept) for text in (guard.sentence, guard.plain)
    )
    return find([rule for rule in rules if not rule.denies], Guard(sentence, plain, guard.tongues))


def _without(
    known: Iterable[Fact], stems: frozenset[str], *, all_: bool = False
) -> list[FactChange]:
    """Return the retraction of the customer's own facts that all ``stems`` stand in."""
    return [
        FactChange("retract", fact.slot)
        for fact in known
        if family(fact.slot) not in _NOT_OWN
        and (all_ or (stems and stems <= _stems(f"{fact.slot} {fact.text}")))
    ]


def _ceased(
    match: re.Match[str], guard: Guard, tongue: Tongue, known: Sequence[Fact]
) -> list[FactChange]:
    what = match.group("what") or ""
    stop = tongue.stops.search(" " + what)
    what = what[: stop.start()] if stop else what
    objects = _stems(tongue.articles.sub("", what.lower().strip()))
    verb = match.group("verb").split()[-1].lower()[:_VERB]
    gone: list[FactChange] = []
    for fact in known:
        if family(fact.slot) == "relative":
            continue
        stems = {stem(word) for word in re.findall(r"\w+", flat(fact.text).lower())}
        if not objects <= stems:
            continue
        if any(held.startswith(verb) for held in stems):
            gone.append(FactChange("retract", fact.slot))
        elif family(fact.slot) == "taste" and objects:
            # "I love it", then "I don't eat it any more": the new takes the old one's place.
            text = guard.sentence[match.start() : match.start("what") + len(what)].strip(TRIM)
            gone.append(FactChange("set", fact.slot, text))
        elif family(fact.slot) in _OWNED and objects:
            gone.append(FactChange("retract", fact.slot))
    return gone


def _stems(text: str) -> frozenset[str]:
    words = re.findall(r"[\w@]+", flat(text).lower())
    return frozenset(stem(word) for word in words if len(word) > _SHORTEST)
