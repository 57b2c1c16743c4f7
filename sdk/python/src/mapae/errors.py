"""What can go wrong between a program and mapae, one class for each thing a caller does differently."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .model import Job


class MapaeError(Exception):
    """The base of every error of this package that a client raises."""


class Unreachable(MapaeError):
    """There was no answer, or none that could be read. Whether the call took effect is not known."""


class WaitTimeout(MapaeError, TimeoutError):
    """The job has not ended within the time that the caller gave. It goes on."""


class JobFailed(MapaeError):
    """The job ended without success; `job` says how."""

    def __init__(self, job: Job) -> None:
        failure = job.failure
        why = f": {failure.message} ({failure.code})" if failure else ""
        super().__init__(f"The job {job.id} is {job.state}{why}")
        self.job = job


class Problem(MapaeError):
    """The server refused: an RFC 9457 body, or what an intermediary said in its place.

    `code` is stable and for programs, `title`, `detail` and `help` are for people. `retry_after` is in
    seconds where the server named a time.
    """

    def __init__(
        self,
        status: int,
        code: str,
        title: str,
        *,
        detail: str | None = None,
        help: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        said = " ".join(part for part in (title, detail) if part)
        super().__init__(f"{said} ({status} {code})" + (f" help: {help}" if help else ""))
        self.status = status
        self.code = code
        self.title = title
        self.detail = detail
        self.help = help
        self.retry_after = retry_after


class NotPermitted(Problem):
    """401 and 403: no valid key, or one without the right that the call needs."""


class NotFound(Problem):
    """404: there is no such thing, or it is another owner's."""


class Conflict(Problem):
    """409: the state does not allow this."""


class NotFinished(Conflict):
    """The job has not ended, so it has no result yet."""


class NotSucceeded(Conflict):
    """The job ended without success, so it has no result."""


class KeyReused(Conflict):
    """The idempotency key was used for another submission."""


class LeaseLost(Conflict):
    """The token is not the job's any more. Nothing has changed; stop the work and drop its result."""


class Expired(Problem):
    """410: the result is no longer kept."""


class Invalid(Problem):
    """The server cannot take this request as it is: sending it again changes nothing."""


class Busy(Problem):
    """429: later, after `retry_after`."""


class Unavailable(Problem):
    """The server, its database or its file store cannot answer now."""


_BY_CODE: Mapping[str, type[Problem]] = {
    "job-not-finished": NotFinished,
    "job-not-succeeded": NotSucceeded,
    "idempotency-key-reused": KeyReused,
    "lease-lost": LeaseLost,
}
_BY_STATUS: Mapping[int, type[Problem]] = {
    401: NotPermitted,
    403: NotPermitted,
    404: NotFound,
    408: Unavailable,
    409: Conflict,
    410: Expired,
    429: Busy,
}


def problem(status: int, headers: Mapping[str, str], body: bytes) -> Problem:
    """The error of an answer with a status of 400 or more."""
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    said = said if isinstance(said, dict) else {}

    def text(name: str) -> str | None:
        value = said.get(name)
        return value if isinstance(value, str) else None

    code = text("code") or f"http-{status}"
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status) or (Invalid if status < 500 else Unavailable)
    return kind(
        status,
        code,
        text("title") or "The answer is none of mapae's.",
        detail=text("detail"),
        help=text("help"),
        retry_after=_seconds(headers.get("retry-after")),
    )


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdigit() else None
