"""What the runtime counts. Numbers only: never a word, never an id."""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

_COMMITS_KEPT: Final = 1_024


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime's numbers at one moment.

    Every message that was accepted ends in one way:
    ``accepted == replied + failed + withdrawn + expired + queued + in_flight``.

    Attributes:
        sessions: session actors in memory.
        held: turns that are held now.
        queued: messages that wait now.
        in_flight: messages being brought to disk now.
        folding: folds under way now.
        accepted: messages taken in.
        replied: messages answered.
        failed: messages answered with an error.
        withdrawn: messages whose caller left while they waited.
        expired: messages whose time ran out while they waited.
        rejected: messages that a bound kept out.
        late_replies: answers whose caller had left.
        turns: turns recorded.
        duplicates: messages answered with a delivery that was recorded before.
        folds: folds kept.
        folds_failed: folds that failed or were refused.
        folds_offline: folds that the offline summarizer did in a model's stead.
        learning: customers who are being learnt about now.
        derivations: turns that facts were derived from.
        derivations_failed: derivations and profile refreshes that failed.
        failures: unexpected failures of actors, and renewals of the lease that failed.
        activations: actors brought in from the store.
        passivations: actors that left memory.
        commits: transactions.
        commit_units_max: most turns and snapshots in one of the last commits.
        commit_units_mean: the mean of the last commits.
        commit_s_median: seconds from batch to settled, median of the last commits.
        commit_s_p99: the 99th percentile of the same.
    """

    sessions: int
    held: int
    queued: int
    in_flight: int
    folding: int
    accepted: int
    replied: int
    failed: int
    withdrawn: int
    expired: int
    rejected: int
    late_replies: int
    turns: int
    duplicates: int
    folds: int
    folds_failed: int
    folds_offline: int
    learning: int
    derivations: int
    derivations_failed: int
    failures: int
    activations: int
    passivations: int
    commits: int
    commit_units_max: int
    commit_units_mean: float
    commit_s_median: float
    commit_s_p99: float


class Counters:
    """The numbers as they grow."""

    def __init__(self) -> None:
        self.queued = 0
        self.in_flight = 0
        self.folding = 0
        self.accepted = 0
        self.replied = 0
        self.failed = 0
        self.withdrawn = 0
        self.expired = 0
        self.rejected = 0
        self.late_replies = 0
        self.turns = 0
        self.duplicates = 0
        self.folds = 0
        self.folds_failed = 0
        self.folds_offline = 0
        self.learning = 0
        self.derivations = 0
        self.derivations_failed = 0
        self.failures = 0
        self.activations = 0
        self.passivations = 0
        self.commits = 0
        self._commits: deque[tuple[int, float]] = deque(maxlen=_COMMITS_KEPT)

    def committed(self, units: int, seconds: float) -> None:
        """Note a transaction."""
        self.commits += 1
        self._commits.append((units, seconds))

    def statistics(self, *, sessions: int, held: int) -> Statistics:
        """Return the numbers as they stand."""
        sizes = [units for units, _ in self._commits] or [0]
        times = sorted(seconds for _, seconds in self._commits) or [0.0]
        grown = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return Statistics(
            sessions=sessions,
            held=held,
            commit_units_max=max(sizes),
            commit_units_mean=sum(sizes) / len(sizes),
            commit_s_median=times[len(times) // 2],
            commit_s_p99=times[len(times) * 99 // 100],
            **grown,
        )
