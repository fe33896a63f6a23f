"""What is never remembered: card numbers, passwords, one-time codes, papers, accounts.

A conversation is kept as it was said, under its customer's key. What is derived
from it is different: facts and profile go into requests for months, and a card
number there helps nobody. So numbers are recognised by their own check digits
where they have them, and else by the word that announces them. What merely looks
alike, an order number or a phone, passes.

The check digits: Luhn for cards (ISO/IEC 7812), modulo 97 for IBAN (ISO 13616)
and the French number, modulo 23 for the Spanish letters, modulo 11 for CPF, CUIL
and RUT.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
import tomllib
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from interturn.actors.once import once
from interturn.actors.words import fold

MASK: Final = "▮▮▮"
"""What stands in the place of what is never remembered."""

# The least that any shape below has in a row: most texts are passed at a glance.
_NUMBERED: Final = re.compile(r"\d(?:[ ./-]?[\dA-Za-z]){6}|G-\d|[-_A-Za-z0-9]{18}")
_ENTRY: Final = re.compile(r'"([^"]+)"|(\S+)')
_NOT_DIGIT: Final = re.compile(r"\D")

_DNI_LETTERS: Final = "TRWAGMYFPDXBNJZSQVHLCKE"
_CARD_LENGTHS: Final = (
    # by the first digits of each network
    (re.compile(r"4"), (13, 16, 19)),
    (re.compile(r"5[1-5]|2[2-7]"), (16,)),
    (re.compile(r"3[47]"), (15,)),
    (re.compile(r"3[068]"), (14,)),
    (re.compile(r"35"), (16,)),
    (re.compile(r"5[06-8]|6"), tuple(range(12, 20))),
)
_CUIL_WEIGHTS: Final = (5, 4, 3, 2, 7, 6, 5, 4, 3, 2)


def _figures(text: str) -> str:
    return _NOT_DIGIT.sub("", text)


def _is_card(text: str) -> bool:
    digits = _figures(text)
    if not any(
        beginning.match(digits) and len(digits) in lengths for beginning, lengths in _CARD_LENGTHS
    ):
        return False
    doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits))]
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0  # noqa: PLR2004


def _is_iban(text: str) -> bool:
    bare = re.sub(r"[\s-]", "", text).upper()
    return int("".join(str(int(sign, 36)) for sign in bare[4:] + bare[:4])) % 97 == 1


def _is_spanish(text: str) -> bool:
    bare = re.sub(r"[\s.-]", "", text).upper()
    number = bare[:-1].translate(str.maketrans("XYZ", "012"))
    return _DNI_LETTERS[int(number) % 23] == bare[-1]


def _is_cpf(text: str) -> bool:
    digits = [int(digit) for digit in _figures(text)]
    for length in (9, 10):
        rest = sum(digits[at] * (length + 1 - at) for at in range(length)) * 10 % 11 % 10
        if rest != digits[length]:
            return False
    return True


def _is_cuil(text: str) -> bool:
    digits = [int(digit) for digit in _figures(text)]
    rest = 11 - sum(map(int.__mul__, digits, _CUIL_WEIGHTS)) % 11
    return digits[10] == {11: 0, 10: 9}.get(rest, rest)


def _is_rut(text: str) -> bool:
    bare = re.sub(r"[.-]", "", text).upper()
    weighed = sum(int(digit) * (2 + at % 6) for at, digit in enumerate(reversed(bare[:-1])))
    return "0123456789K0"[11 - weighed % 11] == bare[-1]


def _is_french(text: str) -> bool:
    digits = _figures(text)
    return 97 - int(digits[:13]) % 97 == int(digits[13:])


def _always(_: str) -> bool:
    return True


# A plus in front says that it is a phone, a letter or digit that it is part of something else.
_SHAPES: Final[Sequence[tuple[re.Pattern[str], Callable[[str], bool]]]] = (
    (re.compile(r"(?<![\w+.-])\d(?:[ ./-]?\d){11,18}(?![\w-])"), _is_card),
    (re.compile(r"\b[A-Za-z]{2}\d{2}(?:[ -]?[A-Za-z0-9]{2,4}){3,8}\b"), _is_iban),
    (re.compile(r"\b\d{4}[ -]\d{4}[ -]\d{2}[ -]\d{10}\b"), _always),
    (
        re.compile(r"(?<![\w-])(?:\d{2}\.?\d{3}\.?\d{3}|[XYZxyz]-?\d{7})[ -]?[A-Za-z](?![\w-])"),
        _is_spanish,
    ),
    (re.compile(r"(?<![\w-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\w-])"), _always),
    (re.compile(r"(?<![\w.])\d{3}\.\d{3}\.\d{3}-\d{2}(?!\w)"), _is_cpf),
    (re.compile(r"(?<![\w-])(?:20|2[347]|3[034])-?\d{8}-?\d(?![\w-])"), _is_cuil),
    (re.compile(r"(?<![\w.])\d{1,2}\.\d{3}\.\d{3}-[\dkK](?!\w)"), _is_rut),
    (re.compile(r"\b[A-Za-z]{4}\d{6}[HMXhmx][A-Za-z]{5}[A-Za-z0-9]\d\b"), _always),
    (re.compile(r"\b[A-ZÑ&]{3,4}\d{6}[A-Z0-9]{3}\b"), _always),
    (re.compile(r"\b[A-Za-z]{6}\d{2}[A-Za-z]\d{2}[A-Za-z]\d{3}[A-Za-z]\b"), _always),
    (re.compile(r"(?<![\w-])[12] ?\d{2} ?\d{2} ?\d{2} ?\d{3} ?\d{3} ?\d{2}(?!\w)"), _is_french),
    (re.compile(r"\bG-\d{6}\b"), _always),
    # Keys of machines: a known beginning, or so long and mixed that nobody says it.
    (re.compile(r"\b(?:sk|pk|ghp|gho|xox[bp]|AKIA|AIza)[-_A-Za-z0-9]{16,}"), _always),
)


class _Announced(NamedTuple):
    """What follows a word that announces a secret."""

    words: frozenset[str]  # the first word of each entry
    pattern: re.Pattern[str]
    asked: re.Pattern[str]


_LINK: Final = r"(?:\s*(?:[:=#]|n[.o]?\s?[ºo°.]|numero|number|nr)\s*|\s+)"
_FILLER: Final = r"(?:\s+(?!de cliente|postal\b|zip\b)[a-z']{1,9}){0,4}?"
_IS: Final = r"\s*(?:[:=]|\b(?:es|is|was|era|sera|seria|e|est|ist|it's)\b[:\s]?)\s*"
_QUOTE: Final = "[\"'«“]?"
_TAILS: Final = {
    "passwords": rf"{_FILLER}{_IS}{_QUOTE}(?P<secret>[^\s,;\"'»”]{{3,64}})",
    "logins": rf"[:\s]+{_QUOTE}(?P<secret>(?=[^\s,;]*[\d$#@%&*+_])[^\s,;\"'»”]{{4,64}})",
    "cards": rf"{_FILLER}{_LINK}+(?P<secret>\d(?:[ ./-]?\d){{11,18}})",
    "codes": rf"{_FILLER}{_LINK}+{_QUOTE}(?P<secret>\d[\d -]{{1,8}}\d)",
    "papers": rf"{_FILLER}{_LINK}+(?P<secret>[a-z]{{0,4}}-?\d(?:[\d.\- ]*\d){{4,}}-?[a-z0-9]*)",
    "accounts": rf"{_FILLER}{_LINK}+(?P<secret>[a-z]{{0,2}}\d(?:[\d \-]*\d){{5,}})",
}
_CODE: Final = r"\b(?:[a-z]-)?(?P<secret>\d(?:[ -]?\d){2,7})(?![\w%€$-]|[.,]\d)"
_SPOKEN_FIGURES: Final = 4  # in a row, and they are a number dictated
_ORDERED: Final = r"pedido|orden|order|factura|invoice|calle|street|cliente|reserva|booking|envio"


@once
def _announced() -> tuple[_Announced, ...]:
    file = importlib.resources.files("interturn.actors") / "deriving" / "private.toml"
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    listed = {
        kind: [phrase or word for phrase, word in _ENTRY.findall(str(entries))]
        for kind, entries in data.items()
    }
    either = {
        kind: "|".join(map(re.escape, sorted(entries, key=len, reverse=True)))
        for kind, entries in listed.items()
    }

    def announced(kinds: Sequence[str], pattern: str, asked: str = "") -> _Announced:
        first = {re.split(r"[\s'-]", entry)[0] for kind in kinds for entry in listed[kind]}
        return _Announced(frozenset(first), re.compile(pattern), re.compile(asked or "(?!)"))

    found: list[_Announced] = []
    for kind, tail in _TAILS.items():
        named = rf"\b(?:{either[kind]})\b"
        found.append(announced([kind], named + tail, named if kind != "logins" else ""))
    before = rf"\b(?P<secret>\d{{3,8}})\b{_FILLER}\s+(?:{either['codes']})\b"
    found.append(announced(["codes"], before))
    # A code: behind or before the word, or beside what tells that it was sent.
    harmless = rf"(?!\s+(?:de (?:la |el )?)?(?:{either['harmless']})\b)"
    beside = rf"(?:[\s:=#\"'«“-]+(?!(?:{either['harmless']}|{_ORDERED})\b)[^\W\d]{{1,14}}){{0,8}}?"
    key = rf"(?<!area )(?<!zip )(?<!postal )(?<!error )\b(?:{either['keys']})\b{harmless}"
    found += [
        announced(["keys"], rf"{key}{beside}[\s:=#\"'«“-]+{_CODE}", rf"{key}[^.!?\d]*\?"),
        announced(["keys"], rf"{_CODE}(?:\s+[a-z]{{1,5}}){{1,2}}\s+{key}"),
    ]
    gap = rf"(?:(?!\b(?:{_ORDERED})\b)[^,.;!?\d]){{0,40}}?"
    came, channel = rf"\b(?:{either['came']})\b", rf"\b(?:{either['channels']})\b"
    found += [
        announced(["came"], rf"{came}{gap}{_CODE}(?={gap}{channel})"),
        announced(["came"], rf"{came}{gap}{channel}{gap}{_CODE}"),
        announced(["channels"], rf"{channel}{gap}{came}{gap}{_CODE}"),
    ]
    of = ["passwords", "cards", "codes", "keys", "accounts"]
    figure = rf"(?:{either['spoken']})"
    run = rf"(?P<secret>{figure}(?:[\s,.-]+(?:y |and )?{figure}){{{_SPOKEN_FIGURES - 1},}})\b"
    secret = "|".join(either[kind] for kind in of)
    found.append(announced(of, rf"\b(?:{secret})\b[^.;!?\d]{{0,30}}?\b{run}"))
    return tuple(found)


_WORDS: Final = re.compile(r"[^\W\d_]+")


def masked(text: str, question: str = "") -> str:
    """Return ``text`` with `MASK` wherever it holds what is never remembered.

    ``question`` is what was asked just before: to "your PIN?" a bare number is one.
    """
    folded = fold(text)
    words = set(_WORDS.findall(folded))
    announced = [kind for kind in _announced() if not words.isdisjoint(kind.words)]
    if announced:
        spans = [
            found.span("secret") for kind in announced for found in kind.pattern.finditer(folded)
        ]
        # Folding keeps places except where a letter becomes two; then it is done on the fold.
        source = text if not spans or len(folded) == len(text) else folded
        for start, end in sorted(spans, reverse=True):
            source = source[:start] + MASK + source[end:]
        text = source
    if _NUMBERED.search(text):
        for shape, holds in _SHAPES:
            text = shape.sub(functools.partial(_mask_if, holds), text)
    if question and len(text) <= _LONGEST_ANSWER and _asks(question):
        text = _FIGURED.sub(MASK, text)
    return text


_FIGURED: Final = re.compile(r"\S*\d\S*")
_LONGEST_ANSWER: Final = 60  # characters


def _mask_if(holds: Callable[[str], bool], found: re.Match[str]) -> str:
    return MASK if holds(found.group()) else found.group()


def _asks(question: str) -> bool:
    """Return whether a question asks for what is never remembered."""
    folded = fold(question)
    return any(kind.asked.search(folded) for kind in _announced())


def is_private(text: str) -> bool:
    """Return whether ``text`` holds anything that is never remembered."""
    return MASK in text or masked(text) != text
