"""What the rules find in one sentence, and how much of it is kept."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from interturn.actors.guard import TRIM, Guard
from interturn.actors.rules import Rule, flat

_STATEMENT: Final = 160  # characters of a sentence kept whole
_SHORTEST: Final = 2
_ITEM_WORDS: Final = 4
_VALUES: Final = ("v", "v2", "v3")
_AND: Final = frozenset({"y", "e", "and", "et", "und", "i"})
_POINTING: Final = frozenset({"it", "that", "this", "them", "him", "her", "eso", "esto", "ello"})
_STREET_AND_NUMBER: Final = re.compile(
    r"(?:[A-Za-z.']+ ){1,4}\d{1,5}(?:,? \w{1,6}){0,3}\.?$|\d{1,5}(?: [A-Za-z.']+){1,4}\.?$"
)


class Found(NamedTuple):
    """A fact that a sentence says.

    Attributes:
        slot: what it is about.
        text: the part of the sentence that says it.
        adds: it says more of what was said under the slot before.
        weak: it only fills a slot that is empty.
        denies: it says that this is no longer so.
    """

    slot: str
    text: str
    adds: bool = False
    weak: bool = False
    denies: bool = False


def find(rules: Iterable[Rule], guard: Guard) -> list[Found]:
    """Return what the rules find in a sentence, in the order in which it is said."""
    taken: list[tuple[str, int, int]] = []
    found: list[tuple[int, Found]] = []
    for rule in rules:
        if rule.tongue not in guard.tongues:
            continue
        for match in rule.say.finditer(guard.plain):
            start, end = match.span()
            family = rule.slot.partition(":")[0]
            if any(family == slot and start < b and a < end for slot, a, b in taken):
                continue
            asked = guard.asked(start)
            if (asked and not rule.asked) or not guard.holds(rule, start, end):
                continue
            facts, end = _facts(rule, match, guard, asked=asked)
            if facts:
                taken.append((family, start, end))
                found += [(start, fact) for fact in facts]
    found.sort(key=lambda item: item[0])
    return [fact for _, fact in found]


def _facts(
    rule: Rule, match: re.Match[str], guard: Guard, *, asked: bool
) -> tuple[list[Found], int]:
    """Return what a match says, and where what says it ends."""
    start, end = match.span()
    valued = [name for name in _VALUES if name in match.re.groupindex]
    spans = [match.span(name) for name in valued if match.group(name)]
    if valued and not spans:
        return [], end
    value_at = spans[0] if spans else (start, end)
    if rule.clip:
        end = _clipped(guard, max(value_at[0], start + 1), end, listed=rule.split)
        value_at = (value_at[0], min(value_at[1], end))
    if rule.extends:
        end = guard.address_end(end)
    value = guard.sentence[slice(*value_at)].strip(TRIM)
    digits = sum(map(str.isdigit, value))
    says_nothing = len(value) < _SHORTEST and not digits
    if says_nothing or digits < rule.digits or flat(value).lower() in _POINTING:
        return [], end
    noun = match.group("n").lower() if "n" in match.re.groupindex else ""
    if rule.split:
        return _each(rule, guard.sentence[start : value_at[0]], value), end
    if rule.keep == "sentence" and not asked:
        text = rule.tongue.leads.sub("", guard.sentence)
        text = text if len(text) <= _STATEMENT else guard.around(start, end, _STATEMENT)
    elif rule.shape:
        text = rule.shape.format(v=value, n=noun)
    else:
        text = guard.sentence[start:end]
    key = rule.tongue.articles.sub("", flat(value).lower())
    slot = rule.slot.format(v=key, n=noun)
    return [Found(slot, text.strip(TRIM), rule.adds, rule.weak, rule.denies)], end


def _clipped(guard: Guard, begin: int, end: int, *, listed: bool) -> int:
    """Return where a saying ends before another thing begins; a list goes on behind an "and"."""
    # In mixed speech another language's word may end it.
    for tongue in guard.tongues:
        laughs = tongue.laughs.search(guard.plain, begin, end)
        end = laughs.start() if laughs else end
        for stop in tongue.stops.finditer(guard.plain, begin, end):
            if listed and stop.group().strip().lower() in _AND:
                continue
            end = stop.start()
            break
    return end


def _each(rule: Rule, lead: str, value: str) -> list[Found]:
    """Return a fact for each of several things, each with the words that led to all."""
    tongue = rule.tongue
    found: list[Found] = []
    preposition = ""
    for item in tongue.both.split(value):
        bare = tongue.articles.sub("", flat(item).lower()).strip(TRIM)
        bare = tongue.articles.sub("", bare)
        if len(bare) < _SHORTEST + 1 or len(bare.split()) > _ITEM_WORDS:
            continue
        led = flat(item).lower() != bare
        text = f"{lead}{'' if led else preposition}{item}"
        preposition = item[: len(item) - len(bare)] if led and not found else preposition
        slot = rule.slot.format(v=bare, n="")
        found.append(Found(slot, text.strip(TRIM), rule.adds, rule.weak, rule.denies))
    return found


def bare_address(sentence: str, plain: str) -> list[Found]:
    """Return a few words and a number, which behind a town are a street's."""
    if not _STREET_AND_NUMBER.match(plain):
        return []
    return [Found("home", sentence.strip(TRIM), adds=True)]
