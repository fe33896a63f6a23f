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


def blocks(name):
    """Return the Python code of a README, block by block."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def printed(code, folder):
    """Run code in a process of its own; return what it prints, which is no warning."""
    run = subprocess.run(  # noqa: S603 - the README's own code
        [sys.executable, "-X", "utf8", "-W", "error", "-c", code],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert run.stderr == ""
    return run.stdout


@pytest.mark.parametrize("name", READMES)
def test_the_embedding_code_runs_as_it_stands(name, tmp_path):
    """The dozen lines of embedding code run, twice over the same database."""
    embedding, _ = blocks(name)
    for _ in range(2):
        assert re.fullmatch(r"Cuesta 12 € \(\d+ tokens\)\n", printed(embedding, tmp_path))
    assert (tmp_path / "memory.key").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", READMES)
def test_the_load_benchmark_runs_as_it_stands(name, tmp_path):
    """The code of the load benchmark records turns, with no error, and prints figures."""
    _, benchmark = blocks(name)
    recorded, errors, p99_us, cpu_us = printed(benchmark, tmp_path).split()
    assert errors == "{}"
    assert min(int(recorded), float(p99_us), float(cpu_us)) > 0


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
