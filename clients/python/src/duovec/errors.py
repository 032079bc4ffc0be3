"""Every way in which a call fails."""

from __future__ import annotations

import json
import re

import httpx

# How much of an answer that is no error of duovec's is shown.
SHOWN_CHARS = 200


class DuovecError(Exception):
    """The base of all errors of this package."""


class AnswerError(DuovecError):
    """An answer with status 200 that is not what a duovec server sends."""


class UnreachableError(DuovecError):
    """No server could be reached: the connection failed, or ended without an answer."""


class DeadlineError(DuovecError):
    """The time of the call is over."""


class ApiError(DuovecError):
    """A server refused the request or failed.

    `code` is the word to compare with, as in the server's documentation; it and `param` (the field
    or header that is wrong) are None when the answer is a proxy's. `request_id` finds the request
    in the server's log. `retry_after_s` is the wait that the server asks for.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str | None = None,
        param: str | None = None,
        kind: str | None = None,
        request_id: str | None = None,
        retry_after_s: float | None = None,
        url: str = "",
    ) -> None:
        super().__init__(f"{status} {code or 'without a code'} from {url}: {message}")
        self.message = message
        self.status = status
        self.code = code
        self.param = param
        self.type = kind
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        self.url = url


class BadRequestError(ApiError):
    """The request is wrong; sending it again does not help."""


class AuthenticationError(ApiError):
    """The key is missing or wrong."""


class OverloadedError(ApiError):
    """The server has too much to do (429), and the time of the call did not allow to wait."""


class UnavailableError(ApiError):
    """The server cannot work now: it loads, it ends, or it lost its workers (502, 503)."""


class ServerError(ApiError):
    """The server failed; its log has the reason under `request_id`."""


class ServerDeadlineError(ApiError, DeadlineError):
    """The server says that the time of the request is over (504)."""


def _class_of(status: int) -> type[ApiError]:
    match status:
        case 401 | 403:
            return AuthenticationError
        case 429:
            return OverloadedError
        case 502 | 503:
            return UnavailableError
        case 504:
            return ServerDeadlineError
        case _ if status >= 500:
            return ServerError
    return BadRequestError


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds; its other form, a date, is not used by the server."""
    try:
        return max(0.0, float(header)) if header is not None else None
    except ValueError:
        return None


def _of_call(message: str, first: int) -> str:
    """The server counts texts within a request; the caller counts those of the call."""
    return re.sub(
        r"\b(input\[|item )(\d+)", lambda match: f"{match[1]}{int(match[2]) + first}", message
    )


def from_response(response: httpx.Response, url: str, first: int) -> ApiError:
    """The error of an answer to a request that began with text `first` of the call."""
    parts: dict[str, str | None] = {}
    try:
        error = json.loads(response.content)["error"]
        parts = {name: error.get(name) for name in ("message", "type", "param", "code")}
    except (ValueError, TypeError, KeyError, AttributeError):
        text = response.text.strip()[:SHOWN_CHARS]
        parts["message"] = f"not an answer of duovec's: {text or 'an empty body'}"
    return _class_of(response.status_code)(
        _of_call(str(parts.get("message")), first),
        status=response.status_code,
        code=parts.get("code"),
        param=parts.get("param"),
        kind=parts.get("type"),
        request_id=response.headers.get("x-request-id"),
        retry_after_s=_seconds(response.headers.get("retry-after")),
        url=url,
    )
