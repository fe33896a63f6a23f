"""The command line as a person or a program meets it: a process, its output, its status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SILENCED = {"LC_ALL", "LC_MESSAGES", "LANG", "LANGUAGE", "NO_COLOR", "FORCE_COLOR"}


class Shell:
    """Runs `interturn` in a folder of its own.

    Attributes:
        folder: where it runs.
        environ: what it sees.
        command: how it is called.
    """

    command = (sys.executable, "-m", "interturn.runtime.cli")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {
            name: value
            for name, value in os.environ.items()
            if name not in SILENCED and not name.startswith("INTERTURN_")
        } | {"LC_ALL": "en_US.UTF-8", "PYTHONUTF8": "1", "PYTHONWARNINGS": "error"}

    def start(self, *arguments: str, **environ: str) -> subprocess.Popen[bytes]:
        """Start it and return at once."""
        return subprocess.Popen(  # noqa: S603 - our own command
            [*self.command, *arguments],
            cwd=self.folder,
            env=self.environ | environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def __call__(
        self, *arguments: str, heard: str = "", status: int = 0, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end; the exit status must be ``status``, a refusal's one line."""
        process = self.start(*arguments, **environ)
        out, err = process.communicate(heard.encode())
        done = subprocess.CompletedProcess(
            arguments, process.returncode, out.decode(), err.decode()
        )
        assert done.returncode == status, (done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        if status == 0:
            assert done.stderr == ""
        return done

    def refusal(self, *arguments: str, status: int = 1, **environ: str) -> str:
        """Run what must be refused; return its one line."""
        done = self(*arguments, status=status, **environ)
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1
        return done.stderr

    def write(self, name: str, content: object) -> str:
        """Write JSON into the folder; return the file's name."""
        (self.folder / name).write_text(json.dumps(content), encoding="utf-8")
        return name

    @staticmethod
    def conversation(turns: int, *, name: str = "Ana") -> dict[str, list[dict[str, str]]]:
        """Return a made-up conversation with something to remember in each turn."""
        messages = []
        for number in range(1, turns + 1):
            order, day = 4_000 + number, number % 28 + 1
            asked = f"Soy {name}, pedido {order}, piso {number}.º."
            told = f"El pedido {order} sale el {day} de mayo."
            messages += [
                {"role": "user", "content": asked},
                {"role": "assistant", "content": told},
            ]
        return {"messages": messages}


@pytest.fixture
def interturn(tmp_path):
    """Return `interturn` in a folder of its own."""
    return Shell(tmp_path)
