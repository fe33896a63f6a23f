"""All that the command line says to people, in Spanish and in English.

One table a language, each in a module of its own, with the same keys and the same
placeholders; a test holds that. ``help.*`` are the words of ``--help``, ``error.*``
those of refusals, named for the error's class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from interturn.runtime.cli.english import ENGLISH
from interturn.runtime.cli.spanish import SPANISH

TABLES: Final[dict[str, dict[str, str]]] = {"es": SPANISH, "en": ENGLISH}
LANGUAGES: Final = tuple(TABLES)


class Texts:
    """One language's words: ``texts("key", name=value)`` is the sentence.

    Args:
        language: ``"es"`` or ``"en"``.
    """

    def __init__(self, language: str) -> None:
        self.language = language
        self._table = TABLES[language]

    def __call__(self, key: str, /, **values: object) -> str:
        """Return the sentence with its values filled in."""
        return self._table[key].format(**values)

    def number(self, written: object) -> str:
        """Return a number with the marks of the language, written with the marks of English."""
        marks = str.maketrans(",.", ".,") if self.language == "es" else {}
        return str(written).translate(marks)

    def __contains__(self, key: str) -> bool:
        """Tell whether there is such a sentence."""
        return key in self._table


def language_of(environ: Mapping[str, str]) -> str:
    """Return the language that the locale asks for; English where it asks for neither."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if locale := environ.get(name):
            return "es" if locale.lower().startswith("es") else "en"
    return "en"
