"""What the command line says, and how it reaches a terminal."""

import re
import sqlite3
import string
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from msgspec.structs import asdict

from interturn.runtime import InterturnError, Keyring, Settings, StoreFailed
from interturn.runtime.cli import texts
from interturn.runtime.cli.refusals import sentence
from interturn.runtime.cli.terminal import plain
from interturn.runtime.cli.texts import TABLES, Texts, language_of
from interturn.runtime.errors import InvalidSettings
from interturn.runtime.load import LoadPlan
from interturn.runtime.texts import check_id, check_text, check_time
from interturn.storage import SqliteStore
from interturn.storage.connection import failure

OUTSIDE = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
"""A time with a zone that has none in UTC."""


def placeholders(sentence: str) -> set[str]:
    """Return the names that a sentence is filled with."""
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name is not None}


def test_both_languages_say_the_same_things():
    """Spanish and English have the same keys, with the same placeholders in each."""
    spanish, english = TABLES["es"], TABLES["en"]
    assert spanish.keys() == english.keys()
    for key, words in spanish.items():
        assert placeholders(words) == placeholders(english[key]), key


def test_every_sentence_is_used_and_every_used_one_is_there():
    """No key is dead, and none is missing."""
    folder = Path(texts.__file__).parent
    tables = {"spanish.py", "english.py"}
    code = "\n".join(
        path.read_text(encoding="utf-8") for path in folder.glob("*.py") if path.name not in tables
    )
    built = ("error.", "os.", "transcript.", "replay.", "layer.", "finding.", "slot.", "unit.")
    for key in TABLES["en"]:
        quoted = re.search(f"[\"']{re.escape(key)}[\"']", code)
        assert quoted or key in {"visitor", "agent"} or key.startswith(built), key
    groups = {key.partition(".")[0] for key in TABLES["en"]}
    for found in re.findall(r"[\"']([a-z]+\.[a-zA-Z_]+)[\"']", code):
        if found.partition(".")[0] in groups:
            assert found in TABLES["en"], found


@pytest.mark.parametrize(
    ("environ", "language"),
    [
        ({}, "en"),
        ({"LANG": "es_ES.UTF-8"}, "es"),
        ({"LANG": "es"}, "es"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LANG": "es_AR", "LC_ALL": "en_GB"}, "en"),
        ({"LANG": "en_GB", "LC_MESSAGES": "es_MX"}, "es"),
        ({"LANG": "es_AR", "LC_ALL": ""}, "es"),
    ],
)
def test_the_language_is_the_locales(environ, language):
    """LC_ALL goes before LC_MESSAGES and that before LANG; an empty one says nothing."""
    assert language_of(environ) == language


def test_values_are_never_read_as_placeholders():
    """A name with braces in it is a name."""
    assert Texts("es")("replay.session", session="{0} {x}") == "Sesión {0} {x}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;hola\x07", "\\x1b[2J\\x1b]0;hola\\x07"),
        ("a\r\nb\rc", "a\nb\\x0dc"),
        ("a\tb", "a    b"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("[red]no[/red] 👩‍👧 ñ عربى", "[red]no[/red] 👩‍👧 ñ عربى"),
    ],
)
def test_control_characters_are_spelled(text, shown):
    """No control character of anyone's text reaches a terminal; all else does."""
    assert plain(text) == shown


def refused(call, *arguments, **named):
    """Return what a call raises."""
    with pytest.raises((InterturnError, ValueError)) as caught:
        call(*arguments, **named)
    return caught.value


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (refused(check_text, "visitor", "ññ", 3), "4 bytes en UTF-8 y el máximo es 3"),
        (refused(check_text, "visitor", "", 3), "está vacío"),
        (refused(check_text, "visitor", "\ud800", 9), "tiene subrogados sueltos"),
        (refused(check_id, "session_id", "a\n"), "tiene caracteres de control"),
        (refused(check_id, "session_id", "a" * 513), "513 bytes en UTF-8"),
        (refused(check_time, datetime(2024, 1, 1)), "una zona horaria"),  # noqa: DTZ001
        (refused(check_time, OUTSIDE), "se sale del calendario"),
        (refused(Settings, window=3), "un número par de mensajes"),
        (refused(Settings, window=0), "entre 2 y 1.000 mensajes"),
        (refused(Settings, window=2.5), "un número entero de mensajes"),
        (refused(Settings, idle_s="x"), "un número de segundos"),
        (refused(Settings, fold_at=4_000), "como mucho"),
        (refused(Settings, durability="x"), "full o normal"),
        (refused(Settings.load, None, {"INTERTURN_KEEP_UNANSWERED": "x"}), "true o false"),
        (refused(Settings.load, None, {"INTERTURN_WINDOW": "x"}), "un número de mensajes"),
        (refused(Settings.load, __file__, {}), "un archivo TOML"),
        (refused(SqliteStore, "a.db", keys="a.db"), "necesitan un archivo propio"),
        (refused(LoadPlan, rate=-1), "entre 0,01 y 1.000.000 turnos por segundo"),
        (refused(LoadPlan, skew=11), "entre 0 y 10 (es un exponente)"),
        (
            StoreFailed(str(failure(sqlite3.DatabaseError("the database is damaged")).cause)),
            "dañada",
        ),
        (refused(Keyring.from_environment, "NO_KEYS"), "NO_KEYS debe tener claves de 32 bytes"),
    ],
)
def test_reasons_are_in_the_language_too(error, said):
    """What the library refuses is said in Spanish from end to end, and in English unchanged."""
    assert said in sentence(error, Texts("es"))
    reason = getattr(error, "reason", getattr(error, "bound", None))
    assert reason is None or reason in sentence(error, Texts("en"))


def test_a_bound_of_any_setting_has_its_unit_in_spanish():
    """No unit of a setting is left in English."""
    numbers = [name for name, value in asdict(Settings()).items() if type(value) in (int, float)]
    assert len(numbers) > 15
    for name in numbers:
        bound = refused(Settings, **{name: object()}).bound
        unit = bound.rpartition("number of ")[2]
        said = sentence(InvalidSettings("x", bound), Texts("es"))
        assert said.endswith(f" de {Texts('es')(f'unit.{unit}')}"), name
