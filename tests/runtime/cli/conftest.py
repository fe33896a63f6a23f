"""The command line as a person or a program meets it: its output and its status.

Most commands run here, in this process, through the same `main` that the script calls,
with streams of their own: the second that a process needs to begin adds up. Where the
process is the point (signals, kills, encodings, closed pipes, terminals, two at once) it
is a real one: `Shell.start` and `on_a_terminal`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import structlog

from interturn.runtime.cli import main

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
        """Run to the end here; the exit status must be ``status``, a refusal's one line."""
        with self._streams(heard, environ) as (out, err):
            returned = main(arguments)
        done = subprocess.CompletedProcess(
            arguments, returned, out.getvalue().decode(), err.getvalue().decode()
        )
        return self._checked(done, status)

    def process(
        self, *arguments: str, heard: str = "", status: int = 0, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end in a process of its own."""
        process = self.start(*arguments, **environ)
        out, err = process.communicate(heard.encode())
        done = subprocess.CompletedProcess(
            arguments, process.returncode, out.decode(), err.decode()
        )
        return self._checked(done, status)

    @contextlib.contextmanager
    def _streams(
        self, heard: str, environ: dict[str, str]
    ) -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
        """Give this process the folder, the environment and the streams of one of its own."""
        out, err = io.BytesIO(), io.BytesIO()
        streams = {
            "stdin": io.TextIOWrapper(io.BytesIO(heard.encode()), encoding="utf-8"),
            "stdout": io.TextIOWrapper(out, encoding="utf-8"),
            "stderr": io.TextIOWrapper(err, encoding="utf-8"),
        }
        configured = structlog.get_config()
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.chdir(self.folder))
            stack.enter_context(mock.patch.dict(os.environ, self.environ | environ, clear=True))
            for name, stream in streams.items():
                stack.enter_context(mock.patch.object(sys, name, stream))
            stack.callback(structlog.configure, **configured)
            yield out, err
            streams["stdout"].flush()
            streams["stderr"].flush()
        # Their buffers are read after this, and would be closed with them.
        for stream in streams.values():
            stream.detach()

    @staticmethod
    def _checked(
        done: subprocess.CompletedProcess[str], status: int
    ) -> subprocess.CompletedProcess[str]:
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

    def on_a_terminal(
        self, *arguments: str, heard: str = "", status: int = 0, **environ: str
    ) -> str:
        """Run on a pseudo-terminal, typing ``heard``, and return what it was sent."""
        reader, terminal = pty.openpty()
        try:
            process = subprocess.Popen(  # noqa: S603 - our own command
                [*self.command, *arguments],
                cwd=self.folder,
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
                env=self.environ | {"TERM": "xterm-256color"} | environ,
            )
            os.close(terminal)
            os.write(reader, heard.encode())
            shown = b""
            while True:
                try:
                    data = os.read(reader, 65_536)
                except OSError:  # Linux says so when the other side is closed
                    break
                if not data:
                    break
                shown += data
            assert process.wait() == status, shown.decode()
        finally:
            os.close(reader)
        return shown.decode()


@pytest.fixture
def interturn(tmp_path):
    """Return `interturn` in a folder of its own."""
    return Shell(tmp_path)
