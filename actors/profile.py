"""The profile: who this is, how they like to be treated, what stands.

What must never be missed (a name, a language, an allergy) stands first and is put
there by code from the facts at each change, whatever a profiler wrote and whenever
it last ran. Behind it stands the profiler's text, as far as the cap has room. The
offline profiler writes nothing of its own: its text is the facts themselves, the
telling ones first, in the customer's words.

Invariants, held here and named in the tests: the result never exceeds the cap; it
is never empty while facts exist and the cap has room for a word; it holds nothing
of what is never remembered; the same facts give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from interturn.actors.book import STANDING, folded
from interturn.actors.facts import Fact
from interturn.actors.message import Message
from interturn.actors.ports import TokenCounter
from interturn.actors.private import is_private
from interturn.actors.sentences import cut_to

# What tells most of whoever it is, after what always stands. What isn't listed comes
# after these, notes last.
_ORDER: Final = (
    "nickname",
    "contact",
    "home",
    "phone",
    "job",
    "relative",
    "children",
    "pet",
    "schedule",
    "pickup",
    "payment",
    "customer-number",
    "plan",
    "device",
    "vehicle",
    "medicine",
    "speaks",
    "order",
)
_PLACES: Final = {family: place for place, family in enumerate((*STANDING, *_ORDER))}
_UNLISTED: Final = len(_PLACES)
_LAST: Final = {"note": _UNLISTED + 1}


def always_on(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """Return the facts that stand in every profile: name, language, allergies and the like.

    In the order of `STANDING`, and within a slot in the order in which they were first said.
    """
    standing = [fact for fact in facts if _family(fact) in STANDING]
    standing.sort(key=lambda fact: (_PLACES[_family(fact)], fact.since, fact.slot))
    return tuple(standing)


def render(text: str, facts: Sequence[Fact], *, cap_tokens: int, counter: TokenCounter) -> str:
    """Return the profile: what always stands, then ``text``, at most ``cap_tokens`` tokens.

    Lines of ``text`` that repeat what stands above or that hold what is never remembered
    are left out. With no usable text the facts themselves stand in its place, so that no
    profile is empty while there are facts.

    Args:
        text: what the profiler wrote last, or ``""``.
        facts: the customer's facts as they are now.
        cap_tokens: by ``counter``, of the final text.
        counter: counts the tokens.
    """
    lines = [_line(fact.text) for fact in always_on(facts)]
    written = _written(text, facts)
    profile = _within([*lines, *map(_line, written)], cap_tokens, counter) if written else ""
    if profile:
        return profile
    return _within([*lines, *(_line(fact.text) for fact in _ranked(facts))], cap_tokens, counter)


def same(text: str, facts: Sequence[Fact], before: Sequence[Fact]) -> bool:
    """Return whether ``text`` renders to the same profile with these facts as with those before.

    With a profiler's text, which says what most facts do, most changes of facts leave it.
    """
    if not text:
        return False  # the facts themselves stand there
    written = _written(text, facts)
    if all(map(is_private, written)):
        return False
    return always_on(facts) == always_on(before) and written == _written(text, before)


class OfflineProfiler:
    """Keeps a profile of the facts themselves, with no network and no model."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    async def refresh(
        self, profile: str, recent: Sequence[Message], facts: Sequence[Fact], *, cap_tokens: int
    ) -> str:
        """Return the new profile, at most ``cap_tokens`` tokens.

        Of the facts alone, so a former ``profile`` and the ``recent`` messages change nothing.
        """
        del profile, recent
        return render("", facts, cap_tokens=cap_tokens, counter=self._counter)


def _written(text: str, facts: Iterable[Fact]) -> list[str]:
    """Return the lines of ``text``, but those that state what a fact no longer says."""
    former = [fact.was for fact in facts if fact.was]
    bare = {folded(was) for was in former}
    lowered = [was.casefold() for was in former]

    def stands(line: str) -> bool:
        low = line.casefold()
        return folded(line) not in bare and not any(was in low for was in lowered)

    return [line for line in text.splitlines() if line.strip() and stands(line)]


def _family(fact: Fact) -> str:
    return fact.slot.partition(":")[0]


def _ranked(facts: Iterable[Fact]) -> list[Fact]:
    """Return the facts that don't always stand, the most telling first."""
    rest = [fact for fact in facts if _family(fact) not in STANDING]

    def telling(fact: Fact) -> tuple[int, int, float, str]:
        family = _family(fact)
        place = _LAST.get(family, _PLACES.get(family, _UNLISTED))
        # Of many orders and notes the often and lately spoken of come first.
        return place, -fact.sightings, -fact.last_seen.timestamp(), fact.slot

    return sorted(rest, key=telling)


def _line(text: str) -> str:
    text = " ".join(text.split())
    return text[:1].upper() + text[1:]


def _within(lines: Iterable[str], cap: int, counter: TokenCounter) -> str:
    """Return as many lines as fit, in order; a line that doesn't fit is passed over."""
    profile = ""
    taken: set[str] = set()
    cut_line = ""
    refused = 0
    for line in lines:
        if (bare := folded(line)) in taken or is_private(line):
            continue
        longer = f"{profile}\n{line}" if profile else line
        tokens = counter.count(longer)
        if tokens <= cap:
            profile = longer
            taken.add(bare)
            continue
        if not profile and not cut_line:
            cut_line = cut_to(line, cap, counter.count, tokens=tokens)
        refused += 1
        # The rest are as long as these, more or less: counting them all would be for nothing.
        if refused >= _PATIENCE:
            break
    return profile or cut_line


_PATIENCE: Final = 8
