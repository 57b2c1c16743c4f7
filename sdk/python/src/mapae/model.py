"""What the server tells, as values. Fields that this version does not know stay in `raw`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from .errors import JobFailed

TERMINAL = frozenset({"succeeded", "failed", "cancelled", "stale"})

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(?:Z|\+00:00)")


def parse_time(text: str) -> datetime:
    """An RFC 3339 time in UTC, with any number of digits after the second."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError("this is no RFC 3339 time in UTC")
    micros = int((found[2] or "0")[:6].ljust(6, "0"))
    return datetime.fromisoformat(found[1]).replace(microsecond=micros, tzinfo=timezone.utc)


def format_time(time: datetime | str) -> str:
    """As the server reads it. A time without a zone could be anybody's and is refused."""
    if isinstance(time, str):
        return time
    if time.tzinfo is None:
        raise ValueError("a time needs its zone, for example datetime.now(timezone.utc)")
    return time.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def _time(value: Any) -> datetime | None:
    return parse_time(value) if isinstance(value, str) else None


@dataclass(frozen=True)
class Failure:
    """Why an attempt ended without success. `kind` is the failure's class: `retryable`, `terminal`, `stale`,
    `lost`, `timeout` or `cancelled`."""

    code: str
    kind: str
    message: str
    attempt: int


@dataclass(frozen=True)
class Progress:
    """How far a running job has come."""

    stage: str
    done: int
    of: int


@dataclass(frozen=True)
class Source:
    """The file that a job works on."""

    name: str
    bytes: int
    sha256: str
    media_type: str


@dataclass(frozen=True)
class Job:
    """A job as its owner sees it, at the moment of the answer."""

    id: str
    owner: str
    kind: str
    state: str
    phase: str
    attempt: int
    max_attempts: int
    priority: int
    created_at: datetime
    due_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    cancel_requested: bool
    duplicate: bool
    failure: Failure | None
    progress: Progress | None
    source: Source | None
    why_waiting: str | None
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self.state in TERMINAL

    def raise_unless_succeeded(self) -> Job:
        """Itself where it has succeeded, :class:`JobFailed` where it ended otherwise or has not ended."""
        if self.state != "succeeded":
            raise JobFailed(self)
        return self

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Job:
        """Reads the server's JSON."""
        failure, progress = raw.get("failure"), raw.get("progress")
        return Job(
            id=raw["id"],
            owner=raw["owner"],
            kind=raw["kind"],
            state=raw["state"],
            phase=raw["phase"],
            attempt=raw["attempt"],
            max_attempts=raw["max_attempts"],
            priority=raw["priority"],
            created_at=parse_time(raw["created_at"]),
            due_at=parse_time(raw["due_at"]),
            started_at=_time(raw.get("started_at")),
            finished_at=_time(raw.get("finished_at")),
            cancel_requested=raw["cancel_requested"],
            duplicate=bool(raw.get("duplicate")),
            failure=failure and Failure(failure["code"], failure["class"], failure["message"], failure["attempt"]),
            progress=progress and Progress(progress["stage"], progress["done"], progress["of"]),
            source=source_of(raw.get("source")),
            why_waiting=raw.get("why_waiting"),
            raw=raw,
        )


def source_of(raw: Mapping[str, Any] | None) -> Source | None:
    """Reads the server's JSON of a job's file."""
    return raw and Source(raw["name"], raw["bytes"], raw["sha256"], raw["media_type"])  # type: ignore[return-value]


@dataclass(frozen=True)
class Event:
    """Something that happened to a job.

    `name` is `accepted`, `claimed`, `succeeded` and so on. `position` is where a later call goes on after
    this event; progress and `published` are not kept and have none. `data` never has a job's content.
    """

    name: str
    job: str
    position: str | None
    sequence: int | None
    data: Mapping[str, Any]

    @property
    def ended(self) -> bool:
        """Whether the job's state was final after it."""
        return self.name in TERMINAL


@dataclass(frozen=True)
class Page:
    """Some of a list, and where it goes on."""

    jobs: list[Job]
    cursor: str | None


@dataclass(frozen=True)
class Lease:
    """A job and the right to do it, until the lease ends.

    `token` is that right: with it the job can be ended, by whoever has it. `idempotency_key` is for calls to
    the outside, the same in every attempt.
    """

    id: str
    kind: str
    params: Any
    attempt: int
    idempotency_key: str
    token: str | None = field(default=None, repr=False)
    owner: str | None = None
    max_attempts: int | None = None
    deadline: datetime | None = None
    traceparent: str | None = None
    source: Source | None = None
    lease_seconds: float | None = None
    checkpoints: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Lease:
        """Reads the server's JSON of a leased job."""
        return Lease(
            id=raw["id"],
            kind=raw["kind"],
            params=raw["params"],
            attempt=raw["attempt"],
            idempotency_key=raw["idempotency_key"],
            token=raw["token"],
            owner=raw["owner"],
            max_attempts=raw["max_attempts"],
            deadline=_time(raw.get("deadline")),
            traceparent=raw.get("traceparent"),
            source=source_of(raw.get("source")),
            lease_seconds=raw["lease_seconds"],
            checkpoints=raw["checkpoints"],
        )
