"""Who owns what: the values and rules of a conversation.

No I/O, no clock, no tasks: everything here can be tested with no loop at all.
"""

from interturn.actors.errors import (
    BudgetExceeded,
    CustomerMismatch,
    DeliveryConflict,
    Forgotten,
    InterturnError,
    InvalidId,
    InvalidText,
    TurnClosed,
    TurnExpired,
)
from interturn.actors.extractive import Extractive
from interturn.actors.facts import Fact, FactChange, Scored
from interturn.actors.message import Message, Role
from interturn.actors.ports import (
    CustomerIndex,
    Deriver,
    IndexingRetriever,
    Profiler,
    Retriever,
    Summarizer,
    TokenCounter,
)
from interturn.actors.request import MESSAGE_TOKENS, Block, ChosenFact, Receipt, Request
from interturn.actors.summary import Summary

__all__ = [
    "MESSAGE_TOKENS",
    "Block",
    "BudgetExceeded",
    "ChosenFact",
    "CustomerIndex",
    "CustomerMismatch",
    "DeliveryConflict",
    "Deriver",
    "Extractive",
    "Fact",
    "FactChange",
    "Forgotten",
    "IndexingRetriever",
    "InterturnError",
    "InvalidId",
    "InvalidText",
    "Message",
    "Profiler",
    "Receipt",
    "Request",
    "Retriever",
    "Role",
    "Scored",
    "Summarizer",
    "Summary",
    "TokenCounter",
    "TurnClosed",
    "TurnExpired",
]
