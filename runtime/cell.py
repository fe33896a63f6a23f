"""The cell: the runtime's place for one actor.

A key always exists as an idea; its cell is made when the first message comes
and dropped when nothing is left to do, which is what makes the actor virtual
(Bykov et al., "Orleans: Distributed Virtual Actors", Microsoft Research 2014).
A cell is a dict entry and a few fields: no task, no queue object while idle.

How a message goes. `ask` is synchronous, so order is first come, first served.
If the actor is there and nothing is under way, it decides at once, in the
caller's own task: nothing can cancel a function that doesn't await. A decision
that has to rest on disk goes to the writer; until it is settled the actor is
*in flight* and later messages queue. Whoever settles it, the writer's task,
applies the event, gives the reply and lets the queue go on. So everything that
awaits happens in tasks that the runtime owns, and a caller that is cancelled
tears nothing: a message that still queued is withdrawn, one under way completes
and its reply is discarded.

Two queues. The mailbox holds what can't be decided yet because the actor is
absent or in flight. The line holds what waits for the turn that another holds;
it goes before the mailbox when the turn is free, since it came before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import timedelta
from enum import Enum, auto
from typing import Final, TypeVar

from interturn.actors.commands import (
    Answer,
    Command,
    Durable,
    Event,
    FoldDone,
    FoldFailed,
    Known,
    Now,
    Persist,
    Release,
    Released,
    SummaryLaid,
    Taken,
    Turn,
    TurnRecorded,
)
from interturn.actors.errors import InterturnError, TurnClosed
from interturn.actors.session import SessionActor
from interturn.runtime.errors import ActorFailed, Quarantined, StoreFailed
from interturn.runtime.keeping import CustomerKeeping, SessionKeeping
from interturn.runtime.letter import House, Letter, Look

T = TypeVar("T")


class Phase(Enum):
    """Where a cell is in its life."""

    ABSENT = auto()
    ACTIVATING = auto()
    READY = auto()
    DEACTIVATING = auto()
    QUARANTINED = auto()


EDGES: Final = {
    Phase.ABSENT: {Phase.ACTIVATING},
    Phase.ACTIVATING: {Phase.READY, Phase.ABSENT, Phase.QUARANTINED},
    Phase.READY: {Phase.DEACTIVATING, Phase.ACTIVATING, Phase.QUARANTINED},
    Phase.DEACTIVATING: {Phase.ABSENT},
    Phase.QUARANTINED: {Phase.ACTIVATING, Phase.ABSENT},
}
"""The legal moves. ``READY → ACTIVATING``: the state is dropped and read again."""


SLICE_S: Final = 0.001
"""Seconds of work after which a queue lets others have the loop."""


class IllegalMove(RuntimeError):
    """A cell was moved along an edge that its life doesn't have."""


class Cell:
    """One actor's place: its phase, its state, its queues, whether it is in flight."""

    __slots__ = (
        "_carried",
        "_carried_for",
        "_carried_kept",
        "_flying",
        "_house",
        "_refusal",
        "actor",
        "failed_at",
        "folds_failed",
        "held_since",
        "holder",
        "keeping",
        "line",
        "mailbox",
        "phase",
        "retry_at",
        "session_id",
        "used",
    )

    def __init__(self, session_id: str, house: House) -> None:
        self.session_id = session_id
        self._house = house
        self.phase = Phase.ABSENT
        self.actor: SessionActor | None = None
        self.keeping: SessionKeeping | None = None
        self.mailbox: deque[Letter] | None = None
        self.line: deque[Letter] | None = None
        self.held_since = 0.0
        self.holder: tuple[int, object] | None = None
        self.used = 0.0
        self.failed_at: tuple[float, ...] = ()
        self.folds_failed = 0
        self.retry_at = 0.0
        self._carried: int | None = None
        self._carried_for: str | None = None
        self._carried_kept = False
        self._flying: Letter | None = None
        self._refusal: Callable[[], InterturnError] | None = None

    def __repr__(self) -> str:
        return (
            f"Cell({self.phase.name}, mailbox={len(self.mailbox or ())}, "
            f"line={len(self.line or ())}, in_flight={self.in_flight}, actor={self.actor!r})"
        )

    def move(self, to: Phase) -> None:
        """Go to another phase.

        Raises:
            IllegalMove: `EDGES` has no such edge.
        """
        if to not in EDGES[self.phase]:
            raise IllegalMove(f"{self.phase.name} to {to.name}")
        self.phase = to

    @property
    def key(self) -> str:
        """What stands for the session in logs and errors: never its id."""
        return f"session/{self._house.token(self.session_id)}"

    @property
    def in_flight(self) -> bool:
        """Whether a decision is on its way to disk."""
        return self._flying is not None

    @property
    def ready(self) -> bool:
        """Whether its actor is in memory, and whoever looks needn't wait."""
        return self.phase is Phase.READY and self._refusal is None

    @property
    def waiting(self) -> int:
        """How many messages wait in both queues."""
        return len(self.mailbox or ()) + len(self.line or ())

    def held_by(self, task: object) -> bool:
        """Whether this very task holds the turn, and would wait for itself."""
        return self.holder is not None and self.holder == (self.held, task)

    @property
    def held(self) -> int | None:
        """The ticket under which the turn is held, if it is."""
        return self.actor.held if self.actor is not None else self._carried

    def belongs_to(self, customer: CustomerKeeping) -> bool:
        """Whether its session is this customer's, as far as is known here."""
        if self.keeping is not None:
            return self.keeping.customer is customer
        return self._carried_for is not None and self._carried_for == customer.customer_id

    def may_leave(self, now: float) -> bool:
        """Whether nothing is lost when the cell leaves memory."""
        if self.phase is Phase.ABSENT:
            return self._carried is None
        return self.idle or (self.phase is Phase.QUARANTINED and now >= self.retry_at)

    @property
    def idle(self) -> bool:
        """Whether nothing is held, waiting, under way or being folded."""
        return (
            self.phase is Phase.READY
            and not self.in_flight
            and not self.waiting
            and self.actor is not None
            and self.actor.held is None
            and not self.actor.folding
        )

    # Messages.

    def ask(self, command: Command | Look, claim: str | None = None) -> Letter:
        """Take a message in; its promise is kept, or failed, in any case.

        Raises:
            MailboxFull, Overloaded, RuntimeClosed, Quarantined: it was not taken in.
        """
        if self._refusal is not None:
            raise self._refusal()
        self._house.admit(self, command)
        letter = Letter(command, claim, counted=True)
        if isinstance(command, Answer) and command.ticket != self.held:
            self._answer(letter, error=TurnClosed())  # and nobody is brought in for that
        elif self._free_for(command):
            self._handle(letter)
        else:
            self._enqueue(letter)
            if self.phase in (Phase.ABSENT, Phase.QUARANTINED):
                self.move(Phase.ACTIVATING)
                self._house.activate(self)
        return letter

    def look(self, question: Callable[[Cell], T], claim: str | None = None) -> T:
        """Ask an actor that is `ready` a question: like `ask`, with nothing to wait for.

        Raises:
            Overloaded, MailboxFull, RuntimeClosed: it was not let in.
            CustomerMismatch, ActorFailed: the answer.
        """
        self._house.admit(self, question)
        failed = True
        try:
            if self.keeping is not None:
                self.keeping.check(claim)
            answer = question(self)
            failed = False
        except InterturnError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever an actor raises stays with it
            self._failed(error)
            raise ActorFailed(self.key, type(error).__name__) from None
        finally:
            self._house.answered(failed=failed, late=False)
        return answer

    def tell(self, command: Release | FoldDone) -> Letter:
        """Let the actor know. It overtakes whatever waits, since others wait for it."""
        letter = Letter(command)
        if self._leaves_words(command):
            self._enqueue(letter, first=True)
        elif self.phase is not Phase.READY:
            if isinstance(command, Release):
                self._give_back(command.ticket)
                self._forget_if_done()
            self._answer(letter)
        elif self.in_flight:
            self._enqueue(letter, first=True)
        else:
            self._handle(letter)
            self.pump()
        return letter

    def _leaves_words(self, command: Release | FoldDone) -> bool:
        """Whether a turn is left while its state is being read, and its words are on disk."""
        return (
            self.phase is Phase.ACTIVATING
            and isinstance(command, Release)
            and command.ticket == self._carried
            and self._carried_kept
        )

    def claimed(self) -> str | None:
        """Whose a new session is: the one's who holds the turn, else of who waits and names one."""
        if self._carried is not None:
            return self._carried_for
        letters = (*(self.line or ()), *(self.mailbox or ()))
        return next((letter.claim for letter in letters if letter.claim is not None), None)

    def withdraw(self, letter: Letter, error: BaseException) -> bool:
        """Take back a message that still waits; False if it is past that."""
        if letter.queue is None:
            return False
        queue = letter.queue
        queue.remove(letter)
        self._taken_out(letter, queue)
        letter.withdrawn = True
        letter.promise.fail(error)
        return True

    def expire(self, ticket: int) -> bool:
        """Give the turn to those who wait, if it is still held under this ticket."""
        if not self.line or self.held != ticket:
            return False
        self.tell(Release(ticket))  # an answer in flight comes before it
        return True

    def refuse_waiting(
        self, error: Callable[[], BaseException], *, but: tuple[type, ...] = ()
    ) -> None:
        """Fail all that waits, ``but`` the commands of these kinds."""
        for queue in (self.mailbox, self.line):
            for _ in range(len(queue or ())):
                assert queue is not None
                letter = self._dequeue(queue)
                if isinstance(letter.command, but):
                    self._enqueue(letter)
                    continue
                if isinstance(letter.command, Release):
                    self._give_back(letter.command.ticket)
                self._answer(letter, error=error())

    def pump(self) -> None:
        """Let the queues go on, until a decision is in flight or 1 ms is over."""
        until = self._house.now() + SLICE_S
        while (queue := self._next()) is not None:
            if self._house.now() > until:
                self._house.go_on(self)
                return
            self._handle(self._dequeue(queue), from_line=queue is self.line)

    def _free_for(self, command: Command | Look) -> bool:
        """Whether a message that comes now can be handled now."""
        if self.phase is not Phase.READY:
            return False
        return isinstance(command, Look) or not (self.in_flight or self._next() is not None)

    def _next(self) -> deque[Letter] | None:
        """The queue whose head can be handled now, if any."""
        if self.in_flight or self.phase is not Phase.READY or self.actor is None:
            return None
        if self.line and self.actor.held is None:
            return self.line
        return self.mailbox or None

    def _enqueue(self, letter: Letter, *, first: bool = False) -> None:
        if self.mailbox is None:
            self.mailbox = deque()
        self._place(letter, self.mailbox, first=first)

    def _place(self, letter: Letter, queue: deque[Letter], *, first: bool = False) -> None:
        if first:
            queue.appendleft(letter)
        else:
            queue.append(letter)
        letter.queue = queue
        if letter.counted:
            self._house.queued(1)

    def _dequeue(self, queue: deque[Letter]) -> Letter:
        letter = queue.popleft()
        self._taken_out(letter, queue)
        return letter

    def _taken_out(self, letter: Letter, queue: deque[Letter]) -> None:
        letter.queue = None
        if letter.counted:
            self._house.queued(-1)
        if queue:
            return
        if queue is self.mailbox:  # an idle cell keeps no queue object
            self.mailbox = None
        elif queue is self.line:
            self.line = None

    def _handle(self, letter: Letter, *, from_line: bool = False) -> None:
        """Let the actor decide, and carry the decision out."""
        assert self.actor is not None
        try:
            if self.keeping is not None:
                self.keeping.check(letter.claim)
            if isinstance(letter.command, Look):
                self._answer(letter, letter.command.question(self))
                return
            decision = self.actor.decide(letter.command)
            if isinstance(decision, Now):
                if decision.event is not None:
                    self._apply(decision.event)
                self._answer(letter, decision.reply)
            elif isinstance(decision, Persist):
                self._flying = letter
                self._house.persist(self, letter, decision.what)
            else:
                self._stand_in_line(letter, first=from_line)
        except InterturnError as error:
            self._answer(letter, error=error)
        except Exception as error:  # noqa: BLE001 - whatever an actor raises stays with it
            self._fail(letter, error)

    def _stand_in_line(self, letter: Letter, *, first: bool) -> None:
        if self.line is None:
            self.line = deque()
        self._place(letter, self.line, first=first)
        held = self.held
        if len(self.line) == 1 and held is not None:
            self._house.waits(self, held)

    def _apply(self, event: Event) -> None:
        assert self.actor is not None
        self.actor.apply(event)
        match event:
            case Taken(ticket, _):
                self.held_since = self._house.now()
                if self.line:
                    self._house.waits(self, ticket)
            case Released():
                self._house.freed()
            case TurnRecorded():
                self._house.freed()
                self._house.changed(self)
            case SummaryLaid():
                self.folds_failed = 0
                self._house.changed(self)
            case FoldFailed():
                self._house.changed(self)
                self._house.fold_failed(self)

    def _answer(
        self, letter: Letter, reply: object = None, *, error: BaseException | None = None
    ) -> None:
        if letter.counted:
            self._house.answered(
                failed=error is not None,
                late=letter.abandoned,
                duplicate=isinstance(reply, Known),
            )
        if error is None:
            letter.promise.keep(reply)
        else:
            letter.promise.fail(error)

    # What the writer says.

    def settled(
        self, letter: Letter, what: Durable, known: int | None, event: Event | None
    ) -> None:
        """Apply what came to rest, reply, and go on.

        Args:
            letter: the message that was decided.
            what: the decision.
            known: the visitor's sequence number if the delivery was there already;
                what was asked is gone then, too.
            event: what has happened, None with ``known``.
        """
        self._flying = None
        try:
            if event is not None:
                self._apply(event)
                self._answer(letter, event)
            elif known is not None:
                if isinstance(what, Turn) and what.ticket is not None:
                    self._apply(Released(what.ticket))
                self._answer(letter, Known(known))
            if isinstance(what, Released) and self.actor is not None and not self.actor.last:
                self._drop_state(keep_hold=False)  # and with its words the session is gone
                return
        except Exception as error:  # noqa: BLE001 - whatever an actor raises stays with it
            self._fail(letter, error)
        self.pump()

    def unsettled(self, letter: Letter, what: Durable, error: InterturnError) -> None:
        """What was decided did not come to rest, or may not have: read the state again.

        A turn that is held stays held, so that its reply can be tried again;
        only where the turn may be on disk after all, or was left, is it over.
        """
        self._flying = None
        unknown = isinstance(error, StoreFailed) and error.unknown
        over = unknown and isinstance(what, Turn) and what.ticket == self.held
        over = over or isinstance(what, Released)
        self._answer(letter, error=error)
        self._drop_state(keep_hold=not over)

    def _fail(self, letter: Letter, error: Exception) -> None:
        """An actor raised what it doesn't declare: its state can't be trusted."""
        self._answer(letter, error=ActorFailed(self.key, type(error).__name__))
        self._failed(error)

    def _failed(self, error: Exception) -> None:
        rest_s = self._house.failing(self, error)
        if self.in_flight:
            return  # a look failed, which changes nothing; what is being written is settled first
        if rest_s is None:
            self._drop_state(keep_hold=True)
            return
        self.actor = self.keeping = None
        self._rest(rest_s)
        self.refuse_waiting(self.quarantined)
        self._house.freed()

    def quarantined(self) -> Quarantined:
        """Make the error of a cell that rests, with the time that is left."""
        left_s = max(0.0, self.retry_at - self._house.now())
        return Quarantined(self.key, self._house.utc() + timedelta(seconds=left_s), left_s)

    def _rest(self, rest_s: float) -> None:
        self.retry_at = self._house.now() + rest_s
        self.move(Phase.QUARANTINED)

    def _drop_state(self, *, keep_hold: bool) -> None:
        if self.phase is not Phase.READY:
            return  # it is being read again already
        self._carried = self.held if keep_hold else None
        self._carried_for = self.keeping.customer.customer_id if self.keeping is not None else None
        self._carried_kept = self.actor is not None and self.actor.kept
        self.actor = self.keeping = None
        if self._carried is None and not self.waiting:
            self.move(Phase.DEACTIVATING)
            self.move(Phase.ABSENT)
            self._forget_if_done()
        else:
            self.move(Phase.ACTIVATING)
            self._house.activate(self)

    # Coming and going.

    def evicted(self, refusal: Callable[[], InterturnError]) -> Letter | None:
        """Refuse whatever comes, now and later: this incarnation is over.

        Returns:
            The message that is being brought to disk, if one is: it comes to its end.
        """
        self._refusal = refusal
        self.refuse_waiting(refusal)
        self._carried = None
        flying = self._flying
        if flying is None and self.phase is Phase.READY:
            self.leave()
        else:
            self._house.gone(self)
        return flying

    def forget_state(self) -> None:
        """The store was changed beside the actor: the next message reads it again."""
        if self.phase is Phase.READY:
            self._drop_state(keep_hold=False)

    def arrived(self, actor: SessionActor, keeping: SessionKeeping) -> None:
        """The actor is there: handle what has come meanwhile."""
        claim = self.claimed()
        if keeping.new is not None and claim not in (None, keeping.customer.customer_id):
            # Nobody has it yet, and who named its owner came while it was being read.
            self._house.activate(self)
            return
        self.actor = actor
        self.keeping = keeping
        self.move(Phase.READY)
        if self._refusal is not None:
            self.leave()
            return
        if self._carried is not None:
            ticket, self._carried = self._carried, None
            self._carried_for = None
            actor.apply(Taken(ticket, self._carried_kept))
            if self.line:
                self._house.waits(self, ticket)
        self._house.changed(self)
        self.pump()

    def refused(self, error: Callable[[], BaseException], rest_s: float | None = None) -> None:
        """The actor can't be brought in: those who wait are told why, and nothing else.

        A turn that is held stays held: whoever holds it may try again.

        Args:
            error: makes the error for each.
            rest_s: seconds to rest if it has failed too often.
        """
        if rest_s is None:
            self.move(Phase.ABSENT)
        else:
            self._rest(rest_s)
        self.refuse_waiting(error)
        self._forget_if_done()

    def leave(self) -> None:
        """Let the actor go; the next message brings it back from the store.

        Nothing is written first: whatever a session holds is on disk already.
        """
        if self.phase is Phase.READY:
            self.move(Phase.DEACTIVATING)
        self.actor = self.keeping = None
        if self.phase is not Phase.ABSENT:
            self.move(Phase.ABSENT)
        self._carried = None
        self._house.gone(self)

    def _give_back(self, ticket: int) -> None:
        """Free the turn that is held while the actor is away, if it is this one."""
        if self._carried == ticket:
            self._carried = self.holder = None
            self._house.freed()

    def _forget_if_done(self) -> None:
        """Leave no absent cell behind, but one whose turn is held or that has failed lately."""
        if self.phase is Phase.ABSENT and self._carried is None and not self.failed_at:
            self._house.gone(self)
