"""Each call of the API as a value: what is sent, and how the answer is read. No I/O: the two clients do that."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx

from .errors import Problem, Unreachable, WaitTimeout, problem
from .model import Job, Page, format_time

T = TypeVar("T")

# Tries of a call that got no answer, or one that says "later", and the pauses between them in seconds.
PAUSES = (0.1, 0.4, 1.5, 4.0)

# The longest `Retry-After` that is waited out; with a longer one the caller gets the error.
RETRY_AFTER_MAX = 10.0

# Seconds for an answer, unless the call waits for something.
TIMEOUT = 30.0

# Seconds without a byte after which a stream of events is given up and resumed: the server sends one every 15.
STREAM_SILENCE_MAX = 45.0


@dataclass(frozen=True)
class Server:
    """Where the server is and who asks.

    `url` and `key` default to the variables MAPAE_URL and MAPAE_KEY, as for the program `mapae`. `verify` is
    false, or the file of a certificate authority, for a server with a certificate of its own.
    """

    url: str
    key: str | None = field(default=None, repr=False)
    verify: bool | str = True

    @staticmethod
    def at(url: str | None, key: str | None, verify: bool | str = True) -> Server:
        """With what the environment says where something is not given."""
        url = url or os.environ.get("MAPAE_URL") or "http://127.0.0.1:7070"
        return Server(url.rstrip("/"), key or os.environ.get("MAPAE_KEY"), verify)

    def options(self) -> dict[str, Any]:
        """Arguments for either kind of HTTP client."""
        headers = {"user-agent": "mapae-python"}
        if self.key:
            headers["authorization"] = f"Bearer {self.key}"
        verify: Any = self.verify
        if isinstance(verify, str):
            import ssl

            verify = ssl.create_default_context(cafile=verify)
        # A key must not follow a redirect to somewhere else.
        return {
            "base_url": self.url,
            "headers": headers,
            "verify": verify,
            "timeout": TIMEOUT,
            "follow_redirects": False,
        }


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request, and what its answer means.

    `repeatable`: sending it again after an answer was lost changes nothing.
    """

    method: str
    path: str
    read: Callable[[httpx.Response], T]
    json: Any = None
    content: Any = None
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float = TIMEOUT
    repeatable: bool = True

    def request(self) -> dict[str, Any]:
        """Arguments for `request` of either kind of HTTP client."""
        headers = dict(self.headers)
        content = self.content
        if self.json is not None:
            headers["content-type"] = "application/json"
            content = dumps(self.json)
        return {
            "method": self.method,
            "url": self.path,
            "params": {name: value for name, value in self.query.items() if value is not None},
            "content": content,
            "headers": headers,
            "timeout": self.timeout,
        }

    def answer(self, response: httpx.Response) -> T:
        """What was asked for, or the :class:`Problem` that the server told."""
        if response.status_code >= 300:
            raise problem(response.status_code, response.headers, response.content)
        try:
            return self.read(response)
        except (ValueError, KeyError, TypeError) as error:
            raise Unreachable(f"{self.method} {self.path}: the answer is none of mapae's.") from error

    def unanswered(self, error: Exception) -> Unreachable:
        """Without the address and what was sent: errors are logged."""
        return Unreachable(f"{self.method} {self.path}: {type(error).__name__}")

    def pause(self, attempt: int, failed: Exception) -> float | None:
        """How long to wait before the next try, `None` where there is none."""
        if attempt >= len(PAUSES):
            return None
        if isinstance(failed, Problem):
            if failed.status not in (429, 502, 503, 504):
                return None
            # The database may have kept it (503), the intermediary does not know (502, 504).
            if not self.repeatable and failed.status != 429:
                return None
            wanted = failed.retry_after or 0.0
            return None if wanted > RETRY_AFTER_MAX else max(wanted, PAUSES[attempt])
        # Once more only: it took all of its time.
        if isinstance(failed, httpx.ReadTimeout) and attempt > 0:
            return None
        never_sent = isinstance(failed, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
        return PAUSES[attempt] if never_sent or self.repeatable else None


def dumps(value: Any) -> bytes:
    """JSON as the server takes it: no NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _job(response: httpx.Response) -> Job:
    return Job.of(response.json())


def _nothing(_: httpx.Response) -> None:
    return None


def _of(id: str, rest: str = "") -> str:
    return f"/v1/jobs/{quote(id, safe='')}{rest}"


def _accepting(key: str | None, wait: float | None) -> tuple[dict[str, str], float]:
    # A key of its own makes a call that is sent again, because its answer was lost, the same submission.
    headers = {"idempotency-key": key or str(uuid.uuid4())}
    if wait:
        headers["prefer"] = f"wait={int(wait)}"
    return headers, TIMEOUT + (wait or 0)


def submit(
    kind: str,
    params: Any,
    *,
    key: str | None,
    owner: str | None,
    priority: int | None,
    run_at: datetime | str | None,
    deadline: datetime | str | None,
    unique: Mapping[str, Any] | None,
    on: Mapping[str, Any] | None,
    wait: float | None,
) -> Call[Job]:
    body: dict[str, Any] = {"kind": kind, "params": {} if params is None else params}
    more = {
        "owner": owner,
        "priority": priority,
        "run_at": run_at and format_time(run_at),
        "deadline": deadline and format_time(deadline),
        "unique": unique,
        "on": on,
    }
    body.update((name, value) for name, value in more.items() if value is not None)
    headers, timeout = _accepting(key, wait)
    return Call("POST", "/v1/jobs", _job, json=body, headers=headers, timeout=timeout)


def upload(
    content: Any,
    *,
    name: str,
    kind: str | None,
    params: Any,
    key: str | None,
    owner: str | None,
    wait: float | None,
) -> Call[Job]:
    query = {
        "name": name,
        "kind": kind,
        "owner": owner,
        "params": None if params is None else dumps(params).decode(),
    }
    headers, timeout = _accepting(key, wait)
    headers["content-type"] = "application/octet-stream"
    # A stream has been read once it was sent.
    return Call(
        "POST",
        "/v1/documents",
        _job,
        content=content,
        query=query,
        headers=headers,
        timeout=timeout,
        repeatable=isinstance(content, bytes),
    )


def job(id: str) -> Call[Job]:
    return Call("GET", _of(id), _job)


def jobs(query: Mapping[str, Any]) -> Call[Page]:
    def read(response: httpx.Response) -> Page:
        page = response.json()
        return Page([Job.of(item) for item in page["items"]], page.get("cursor"))

    return Call("GET", "/v1/jobs", read, query=query)


def result(id: str) -> Call[Any]:
    def read(response: httpx.Response) -> Any:
        return None if response.status_code == 204 else response.json()

    return Call("GET", _of(id, "/result"), read)


def cancel(id: str) -> Call[Job]:
    return Call("POST", _of(id, "/cancel"), _job)


def retry(id: str) -> Call[Job]:
    return Call("POST", _of(id, "/retry"), _job, repeatable=False)


def delete(id: str) -> Call[None]:
    return Call("DELETE", _of(id), _nothing)


def events_path(id: str | None) -> str:
    return "/v1/events" if id is None else _of(id, "/events")


class AllTold(Exception):
    """The job has ended, and all its events after that position were told."""


def following(after: str | None, until: float | None) -> dict[str, Any]:
    """Arguments for the request of a stream, which is silent at the latest at `until`."""
    headers = {"accept": "text/event-stream", "accept-encoding": "identity"}
    if after is not None:
        headers["last-event-id"] = after
    silence = STREAM_SILENCE_MAX
    if until is not None:
        silence = max(0.001, min(silence, until - time.monotonic()))
    return {"headers": headers, "timeout": httpx.Timeout(TIMEOUT, read=silence)}


def resting(trouble: int) -> float:
    """Seconds to wait before a stream that ended is asked for again."""
    return PAUSES[min(trouble, len(PAUSES) - 1)]


def within(pause: float, until: float | None, id: str) -> float:
    """The pause, cut at the end of the caller's time; :class:`WaitTimeout` where that is over."""
    if until is None:
        return pause
    left = until - time.monotonic()
    if left <= 0:
        raise WaitTimeout(f"The job {id} has not ended in time.")
    return min(pause, left)
