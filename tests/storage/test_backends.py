"""All backends do the same."""

from __future__ import annotations

import asyncio

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interturn.storage import Adoption, MemoryStore, SqliteStore, StoreFailed

REFS = st.integers(1, 3)
SEQS = st.sampled_from([1, 3, 5, 7])
SEEN = st.one_of(st.none(), st.integers(0, 2))
WRITES = st.one_of(
    st.tuples(st.just("turn"), REFS, SEQS, st.sampled_from([None, "a", "b"])),
    st.tuples(st.just("first"), REFS, st.integers(1, 2), st.sampled_from([None, "a"])),
    st.tuples(st.just("snapshot"), REFS, st.sampled_from([0, 2, 4]), st.integers(0, 2)),
    st.tuples(
        st.just("facts"),
        REFS,
        st.integers(0, 2),
        st.lists(st.tuples(REFS, st.integers(0, 9)), max_size=3),
    ),
)
BATCHES = st.tuples(st.just("batch"), st.lists(WRITES, max_size=8))
REMOVALS = st.one_of(
    st.tuples(st.just("undo"), REFS, SEQS, SEEN),
    st.tuples(st.just("forget"), REFS),
    st.tuples(st.just("delete"), REFS),
    st.tuples(
        st.just("adopt"),
        st.lists(REFS, max_size=2),
        REFS,
        st.booleans(),
        SEEN,
        st.one_of(st.none(), REFS),
        st.lists(REFS, max_size=1),
    ),
)


def write(scribe, kind, ref, number, more):
    match kind:
        case "turn":
            return scribe.turn(ref, number, more)
        case "first":
            return scribe.first(ref, more, customer=number)
        case "snapshot":
            return scribe.snapshot(ref, number, more)
        case _:
            return scribe.facts(ref, number, *more)


def call(scribe, step):
    """Return what does this step to a store, with the same bytes for each."""
    match step:
        case ("batch", writes):
            made = [write(scribe, *what) for what in writes]
            return lambda store: store.commit(made)
        case ("undo", session, seq, seen):
            facts = None if seen is None else scribe.facts(1, seen, (session, 9))
            return lambda store: store.undo(session, seq, snapshot=facts)
        case ("forget", customer):
            return lambda store: store.forget(customer)
        case ("delete", session):
            return lambda store: store.delete_session(session)
        case ("adopt", sessions, customer, new, seen, leaving, begun):
            moved = [(ref, scribe.session(ref, 1).wrapped) for ref in sessions]
            row = scribe.customer(customer) if new else None
            facts = None if seen is None else scribe.facts(customer, seen, (1, 2))
            begun = [scribe.session(ref, customer) for ref in begun]
            return lambda store: store.adopt(
                Adoption(
                    sessions=moved,
                    customer=customer,
                    new_customer=row,
                    snapshot=facts,
                    leaving=leaving,
                    new_sessions=begun,
                )
            )


async def told(what, store):
    """Return what a store answers, be it a value or a refusal."""
    try:
        return await what(store)
    except (StoreFailed, ValueError) as error:
        return type(error), str(error)


async def everything_of(store, scribe):
    """Return what every load tells."""
    hashes = [scribe.hasher.session(f"s{ref}") for ref in (1, 2, 3)]
    return [
        [await store.load_session(hashed, recent=4) for hashed in hashes],
        await store.customers(after=0, limit=9),
        await store.underived(after=0, limit=9),
        await store.underived(after=1, limit=1),
        [await store.sessions_of(ref) for ref in (1, 2, 3)],
    ]


def test_all_backends_give_the_same_outcomes(tmp_path_factory, scribe):
    """Whatever is written and removed, in whatever order, the dictionaries and SQLite agree."""

    async def play(plan):
        folder = tmp_path_factory.mktemp("both")
        stores = [
            MemoryStore(),
            SqliteStore(folder / "in.db", durability="normal"),
            SqliteStore(folder / "apart.db", keys=folder / "keys.db", durability="normal"),
        ]
        for store in stores:
            await store.open(scribe.root, owner="here/1", lease_s=60.0)
        try:
            for step in plan:
                what = call(scribe, step)
                first, *others = [await told(what, store) for store in stores]
                assert others == [first, first]
            first, *others = [await everything_of(store, scribe) for store in stores]
            assert others == [first, first]
        finally:
            for store in stores:
                await store.close()

    @given(st.lists(st.one_of(BATCHES, BATCHES, REMOVALS), min_size=1, max_size=8))
    @settings(
        max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
    )
    def agree(plan):
        asyncio.run(play(plan))

    agree()
