"""What the command line says, and how it reaches a terminal."""

import re
import string
from pathlib import Path

import pytest

from interturn.runtime.cli import texts
from interturn.runtime.cli.terminal import plain
from interturn.runtime.cli.texts import TABLES, Texts, language_of


def placeholders(sentence: str) -> set[str]:
    """Return the names that a sentence is filled with."""
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name is not None}


def test_both_languages_say_the_same_things():
    """Spanish and English have the same keys, with the same placeholders in each."""
    spanish, english = TABLES["es"], TABLES["en"]
    assert spanish.keys() == english.keys()
    for key, sentence in spanish.items():
        assert placeholders(sentence) == placeholders(english[key]), key


def test_every_sentence_is_used_and_every_used_one_is_there():
    """No key is dead, and none is missing."""
    folder = Path(texts.__file__).parent
    code = "\n".join(
        path.read_text(encoding="utf-8") for path in folder.glob("*.py") if path.name != "texts.py"
    )
    built = ("error.", "os.", "transcript.", "replay.", "layer.", "finding.", "slot.")
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
