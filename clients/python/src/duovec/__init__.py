"""Dense and sparse embeddings of a duovec server."""

from duovec.asynchronous import AsyncClient
from duovec.client import Client
from duovec.errors import (
    AnswerError,
    ApiError,
    AuthenticationError,
    BadRequestError,
    DeadlineError,
    DuovecError,
    OverloadedError,
    ServerError,
    UnavailableError,
    UnreachableError,
)
from duovec.memo import Embedder, Memo
from duovec.question import InputType, Limits
from duovec.vectors import Dense, Paired, Sparse

__all__ = [
    "AnswerError",
    "ApiError",
    "AsyncClient",
    "AuthenticationError",
    "BadRequestError",
    "Client",
    "DeadlineError",
    "Dense",
    "DuovecError",
    "Embedder",
    "InputType",
    "Limits",
    "Memo",
    "OverloadedError",
    "Paired",
    "ServerError",
    "Sparse",
    "UnavailableError",
    "UnreachableError",
]
