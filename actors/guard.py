"""What of a sentence may be taken for said: not asked, denied, supposed or told by another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from interturn.actors.rules import Rule, Tongue

TRIM: Final = " \t,;:.!?-–—\"'«»“”()"  # noqa: RUF001
"""What stands around a saying and isn't part of it."""

_ASKED: Final = re.compile(r"¿[^?]*(?:\?|$)")
_TAG: Final = re.compile(
    r"¿\s*(?:eh|no|verdad|vale|sabes|sabe|ok|si|viste|entiendes|correcto)\s*\?"
    r"|,\s*(?:eh|no|right|ok|okay|huh|you know|verdad|vale)\?",
    re.IGNORECASE,
)
_CLAUSE_ENDS: Final = re.compile(
    r"[,;:.!?()\n—–]\s*|\s+(?:y|e|and|but|pero|so|mais|et|und|aber|ma|però|mas|i)\s+",  # noqa: RUF001
    re.IGNORECASE,
)
_SHORT: Final = (
    r"(?:(?:av|avd|avda|pza|pje|gral|cnel|tte|dr|dra|sr|sra|sta|sto|col|int|num|nro|st|blvd|rd|apt"
    r"|dept|dpto|depto|pl|c|s)\.(?= ?\w))"
)
"""Abbreviations within an address, whose point ends nothing."""
_PART: Final = re.compile(
    rf",? ?((?:\b{_SHORT}|[^,;.!?()\n]){{1,40}}(?:\.[ºª°]? ?[\w]{{1,3}}\b)?)", re.IGNORECASE
)
_SIDE: Final = re.compile(
    r" (?:izq|der|dcha?|dret|esq|dir|cent|int|ext|left|right|front|rear|gauche|droite|links"
    r"|rechts|sinistra|destra)\w*\.?(?=[\s,.;]|$)",
    re.IGNORECASE,
)
"""Behind the number of a floor: which door of it."""
_SMALL: Final = frozenset({"de", "del", "la", "las", "los", "el", "en", "of", "y", "da", "do"})
_ADDRESS_WORDS: Final = 5


class Guard:
    """Tells what of one sentence may be taken for said by the customer, of themselves.

    Attributes:
        sentence: as written.
        plain: the same without accents, a letter for a letter.
        asks_all: the whole sentence is a question.
    """

    def __init__(self, sentence: str, plain: str, tongues: Sequence[Tongue]) -> None:
        self.sentence = sentence
        self.plain = plain
        self.tongues = tongues
        self._asks = _questions(plain, tongues)
        self.asks_all = any(a == 0 and b >= len(plain) for a, b in self._asks)

    def asked(self, place: int) -> bool:
        """Return whether ``place`` stands in a question, except as the reason for it."""
        if not any(a <= place < b for a, b in self._asks):
            return False
        return not any(tongue.because.search(self.plain[:place]) for tongue in self.tongues)

    def clause(self, place: int) -> int:
        """Return where the clause that holds ``place`` begins."""
        start = 0
        for end in _CLAUSE_ENDS.finditer(self.plain, 0, place):
            start = end.end()
        return min(start, place)

    def denied(self, place: int) -> bool:
        """Return whether the clause says no before ``place``."""
        before = self.plain[self.clause(place) : place]
        return any(tongue.negations.search(before) for tongue in self.tongues)

    def doubtful(self, place: int) -> bool:
        """Return whether what stands at ``place`` is supposed or told by another, not said."""
        clause = self.clause(place)
        before = self.plain[:place]
        for tongue in self.tongues:
            if tongue.hedges.search(self.plain, clause, place) or tongue.reported.search(before):
                return True
            for condition in tongue.ifs.finditer(before):
                end = condition.end()
                # "Sí" and "si," say yes.
                said = self.sentence[condition.start() : end]
                if self.plain[end : end + 1] == "," or "í" in said:
                    continue
                if condition.start() >= clause or tongue.first_ifs.match(before[end:].lstrip()):
                    return True
        return False

    def holds(self, rule: Rule, start: int, end: int) -> bool:
        """Return whether what a rule found from ``start`` to ``end`` is said, of themselves."""
        if not rule.negated and self.denied(start):
            return False
        if self.doubtful(start) or rule.unless.search(self.plain[:start]):
            return False
        if not rule.joke or rule.serious.search(self.plain, start, end):
            return True
        return not any(tongue.laughs.search(self.plain) for tongue in self.tongues)

    def address_end(self, end: int) -> int:
        """Return where an address that is found up to ``end`` ends: numbers, floors, places."""
        while self.sentence[end : end + 1] in {",", " "}:
            part = _PART.match(self.sentence, end)
            if not part or self.sentence[end] != ",":
                break
            said = part.group(1)
            words = said.split()
            named = words and all(word[:1].isupper() or word in _SMALL for word in words)
            numbered = any(map(str.isdigit, said)) and len(words) <= _ADDRESS_WORDS
            if not (named and len(words) <= _ADDRESS_WORDS) and not numbered:
                break
            end = part.end()
            side = _SIDE.match(self.sentence, end) if numbered else None
            end = side.end() if side else end
        return end

    def around(self, start: int, end: int, length: int) -> str:
        """Return the clauses around a span, at most ``length`` characters or the span."""
        begin = self.clause(start)
        stop = _CLAUSE_ENDS.search(self.plain, end)
        close = stop.start() if stop else len(self.plain)
        return self.sentence[begin : max(end, min(close, begin + length))]


def _questions(plain: str, tongues: Sequence[Tongue]) -> list[tuple[int, int]]:
    if "?" not in plain:
        return []
    bare = _TAG.sub(lambda tag: " " * len(tag.group()), plain)
    if "?" not in bare:
        return []
    spans = [asked.span() for asked in _ASKED.finditer(bare)]
    if spans:
        return spans
    end = bare.rindex("?")
    cuts = [cut_.end() for cut_ in _CLAUSE_ENDS.finditer(bare, 0, end)]
    first = bare.lower().split(maxsplit=1)[0].strip(TRIM)
    if not cuts or any(first in tongue.questions for tongue in tongues):
        return [(0, len(plain))]
    return [(cuts[-1], len(plain))]
