"""The page of guarantees names tests that exist, and leaves out no promise and no setting."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from interturn.runtime import Settings

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)))


@cache
def _tests(file: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in tree.body if isinstance(node, kinds)}


def _rows(title: str) -> list[list[str]]:
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_every_test_that_is_named_exists(file, name):
    """A guarantee whose test was renamed or removed is noticed."""
    assert name.startswith("test_")
    assert name in _tests(file)


def test_every_line_of_every_table_names_a_test():
    """No guarantee stands there without what holds it."""
    titles = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert titles[-1] == "What is not promised"
    for title in titles[:-1]:
        rows = _rows(title)
        assert len(rows) > 4, title
        for row in rows:
            assert "::test_" in row[-1], row
    assert len(NAMED) > 100


def test_no_promise_and_no_setting_is_left_out():
    """The twenty promises and every setting have their line."""
    assert [row[0] for row in _rows("The promises")] == [str(n) for n in range(1, 21)]
    assert [row[0] for row in _rows("The bounds")] == [f"`{f}`" for f in Settings.__struct_fields__]


@pytest.mark.parametrize("name", ["README.md", "README.es.md"])
def test_the_readmes_lead_to_the_page(name):
    """Whoever reads what is promised finds what holds it."""
    assert "](docs/reliability.md" in (ROOT / name).read_text(encoding="utf-8")
