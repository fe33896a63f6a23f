"""What a caller, or the state of a conversation, can make impossible.

`InterturnError` is the one root of every error that leaves the library. The
errors here belong to the rules of a conversation; those of running it and of
storing it stand in `interturn.runtime.errors`. None carries anybody's words or
ids: fields hold counts, bounds and times.
"""

from __future__ import annotations


class InterturnError(Exception):
    """The root: `except InterturnError` catches all that interturn declares."""


class InvalidText(InterturnError, ValueError):
    """A text that can't be kept: empty, too long, or not encodable as UTF-8.

    Attributes:
        field: which argument it was, such as ``"visitor"`` or ``"instructions"``.
        reason: what is wrong with it, with sizes and never the text.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field = field
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}"


class InvalidId(InvalidText):
    """An id that can't be kept: empty, over 512 bytes, or with control characters."""


class BudgetExceeded(InterturnError, ValueError):
    """Instructions and the visitor's message alone don't fit the budget.

    Attributes:
        needed: tokens of the smallest request possible.
        budget: tokens that were allowed.
    """

    def __init__(self, needed: int, budget: int) -> None:
        super().__init__(needed, budget)
        self.needed = needed
        self.budget = budget

    def __str__(self) -> str:
        return f"the smallest request needs {self.needed} tokens, the budget is {self.budget}"


class DeliveryConflict(InterturnError):
    """This delivery id was recorded before with other words. Nothing was written."""

    def __str__(self) -> str:
        return "the delivery id was used before with different words"


class CustomerMismatch(InterturnError, PermissionError):
    """The session belongs to another customer. Nothing was read or written."""

    def __str__(self) -> str:
        return "the session belongs to another customer"


class TurnExpired(InterturnError):
    """The turn was held longer than ``turn_s`` and lost to one that waited."""

    def __str__(self) -> str:
        return "the turn was held too long and another took the session"


class TurnClosed(InterturnError):
    """The turn is over: it was answered, or left without an answer."""

    def __str__(self) -> str:
        return "the turn is over"


class Forgotten(InterturnError):
    """The customer was forgotten meanwhile. Nothing was written."""

    def __str__(self) -> str:
        return "the customer was forgotten"
