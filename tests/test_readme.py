"""What the READMEs show runs as it stands, and both say the same."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from interturn.runtime import Settings

ROOT = Path(__file__).parents[1]
READMES = ("README.md", "README.es.md")


@pytest.mark.parametrize("name", READMES)
def test_the_embedding_code_runs_as_it_stands(name, tmp_path):
    """The dozen lines of embedding code run, twice over the same database."""
    text = (ROOT / name).read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for _ in range(2):
        run = subprocess.run(  # noqa: S603 - the README's own code
            [sys.executable, "-X", "utf8", "-W", "error", "-c", code],
            cwd=tmp_path,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert run.stderr == ""
        assert re.fullmatch(r"Cuesta 12 € \(\d+ tokens\)\n", run.stdout)
    assert (tmp_path / "memory.key").stat().st_mode & 0o077 == 0


def test_the_two_commands_and_the_promises_are_the_same_in_both_languages():
    """The Spanish README has the same commands and as many promises as the English one."""
    english, spanish = ((ROOT / name).read_text(encoding="utf-8") for name in READMES)
    shell = re.compile(r"```sh\n(.*?)```", re.DOTALL)
    assert shell.findall(english) == shell.findall(spanish)
    assert len(shell.findall(english)) == 2
    promise = re.compile(r"^\d+\. \*\*", re.MULTILINE)
    assert len(promise.findall(english)) == len(promise.findall(spanish)) == 20


@pytest.mark.parametrize("name", READMES)
def test_the_settings_table_tells_the_defaults(name):
    """The table of settings names settings that exist, with the defaults they have."""
    text = (ROOT / name).read_text(encoding="utf-8")
    table = text[text.rindex("|---|---|---|") :]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ([^|]+) \|", table, re.MULTILINE)
    assert len(rows) > 10
    settings = Settings()
    for names, values in rows:
        shown = [v.strip("` ") for v in values.split(", ")]
        for setting, value in zip(re.findall(r"`(\w+)`", names), shown, strict=True):
            default = getattr(settings, setting)
            assert re.sub(r"[.,]", "", value) == str(default).removesuffix(".0"), setting
