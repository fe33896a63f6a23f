"""The window: the newest messages, word for word, and the surplus before it.

Invariant, held here and nowhere else: the messages are those after the cursor,
without a gap and in order, so that a message is always in exactly one of
window, surplus and summary. The count is of messages and fixed, so that one can
reason about what the agent still sees.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from interturn.actors.message import Message


class OutOfOrder(Exception):
    """A message that doesn't follow the one before it: the state can't be trusted."""


class Window:
    """All messages that are not folded: the surplus, then the newest ``size``.

    Args:
        size: how many messages the window holds; even, since turns are pairs.
        cursor: sequence number of the last folded message, 0 before any.
        messages: what was recorded after the cursor, oldest first.

    Raises:
        OutOfOrder: the messages don't follow the cursor one by one.
    """

    __slots__ = ("_messages", "cursor", "size", "text_bytes", "tokens")

    def __init__(self, size: int, cursor: int = 0, messages: Iterable[Message] = ()) -> None:
        self.size = size
        self.cursor = cursor
        self.tokens = 0
        self.text_bytes = 0
        # A list of its few messages is a third of a deque.
        self._messages: list[Message] = []
        for message in messages:
            self._append(message)

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    @property
    def last(self) -> int:
        """Sequence number of the newest message, 0 before any."""
        return self.cursor + len(self._messages)

    @property
    def surplus_count(self) -> int:
        """How many messages are older than the window and not folded yet."""
        return max(0, len(self._messages) - self.size)

    @property
    def surplus(self) -> tuple[Message, ...]:
        """The messages older than the window, oldest first."""
        return tuple(self._messages[: self.surplus_count])

    @property
    def newest(self) -> tuple[Message, ...]:
        """The window itself, oldest first."""
        return tuple(self._messages[self.surplus_count :])

    def find(self, seq: int) -> Message | None:
        """Return the message with this sequence number while it is not folded."""
        place = seq - self.cursor - 1
        return self._messages[place] if 0 <= place < len(self._messages) else None

    def extend(self, messages: Iterable[Message]) -> None:
        """Take in what was recorded after the newest, oldest first."""
        for message in messages:
            self._append(message)

    def fold_through(self, cursor: int) -> None:
        """Let go of what the summary now holds: everything up to ``cursor``.

        Raises:
            OutOfOrder: the cursor would go back, or into the window.
        """
        leaving = cursor - self.cursor
        if not 0 <= leaving <= self.surplus_count:
            raise OutOfOrder(f"cursor {self.cursor} can't move to {cursor}")
        for message in self._messages[:leaving]:
            self.tokens -= message.tokens
            self.text_bytes -= _size(message)
        del self._messages[:leaving]
        self.cursor = cursor

    def _append(self, message: Message) -> None:
        if message.seq != self.last + 1:
            raise OutOfOrder(f"message {message.seq} doesn't follow {self.last}")
        self._messages.append(message)
        self.tokens += message.tokens
        self.text_bytes += _size(message)


def _size(message: Message) -> int:
    return len(message.text.encode())
