"""What a handler raises to say how its work went wrong. Whether it is tried again is answered where it is known.

Codes and messages are shown to people and kept: no content of the job in them. Any other exception counts as
retryable, and only the name of its class is told.
"""

from __future__ import annotations

import re
from typing import Any

_CODE = re.compile(r"[a-z0-9._-]{1,64}")


class WorkFailed(Exception):
    """The base of the four. `code` is 1 to 64 of a-z, 0-9, '.', '_' and '-'; `message` one sentence."""

    kind = "retryable"
    retry_after: float | None = None

    def __init__(self, code: str, message: str) -> None:
        if not _CODE.fullmatch(code):
            raise ValueError("a code is 1 to 64 of a-z, 0-9, '.', '_' and '-'")
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message

    def report(self) -> dict[str, Any]:
        """The body of the report `fail`."""
        body: dict[str, Any] = {"code": self.code, "message": self.message, "class": self.kind}
        if self.retry_after is not None:
            body["retry_after"] = f"{max(1, round(self.retry_after * 1000))}ms"
        return body


class Retryable(WorkFailed):
    """It may go well the next time."""


class Terminal(WorkFailed):
    """It will never go well: the job fails for good."""

    kind = "terminal"


class Stale(WorkFailed):
    """What the job points at is gone."""

    kind = "stale"


class RetryAfter(WorkFailed):
    """Somebody that the work needs is busy: again in `seconds`, and no attempt is used."""

    def __init__(self, seconds: float, code: str = "busy", message: str = "What the work needs is busy.") -> None:
        super().__init__(code, message)
        self.retry_after = seconds


class Stopped(Exception):
    """The handler has to end, because of `reason`: `cancelled`, `lease-lost`, `timeout` or `draining`.

    Raised by a context's `check()` and by its reports. To be let through.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def failed(error: BaseException) -> WorkFailed:
    """What to tell of an exception that a handler let out."""
    if isinstance(error, WorkFailed):
        return error
    if isinstance(error, Stopped) and error.reason in ("cancelled", "timeout"):
        if error.reason == "cancelled":
            return Terminal("cancelled", "The work was stopped, as its owner asked.")
        return Retryable("timeout", "The handler took too long.")
    return Retryable("handler-raised", f"The handler raised {type(error).__name__}.")
