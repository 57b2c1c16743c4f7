"""The client for programs that block: submit, wait, follow events, get results."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import IO, Any, TypeVar

import httpx

from . import protocol
from .errors import Problem, Unavailable, Unreachable, problem
from .model import Event, Job
from .protocol import PAUSES, AllTold, Call, Server, following, resting, within
from .sse import Parser

T = TypeVar("T")


class Mapae:
    """A connection to a server; may be shared by threads. To be closed, or used in a `with` block.

    Calls are tried again for some seconds where there was no answer or the server said "later"; each is safe
    to be sent twice. Errors are those of :mod:`mapae.errors`.
    """

    def __init__(self, url: str | None = None, key: str | None = None, *, verify: bool | str = True) -> None:
        self.server = Server.at(url, key, verify)
        self._http = httpx.Client(**self.server.options())

    def close(self) -> None:
        """Ends its connections."""
        self._http.close()

    def __enter__(self) -> Mapae:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(
        self,
        kind: str,
        params: Any = None,
        *,
        key: str | None = None,
        owner: str | None = None,
        priority: int | None = None,
        run_at: datetime | str | None = None,
        deadline: datetime | str | None = None,
        unique: Mapping[str, Any] | None = None,
        on: Mapping[str, Any] | None = None,
        wait: float | None = None,
    ) -> Job:
        """Hands a job over. When this returns, the job is kept; it is not done.

        `key` is the idempotency key: the same submission under the same key gives the same job, another one
        :class:`~mapae.errors.KeyReused`. Give one that the work itself has (`f"context/{record.id}"`), so that
        a program that crashed may submit again. `wait` asks for the answer to come only when the job has
        ended, up to so many seconds.
        """
        return self._do(
            protocol.submit(
                kind,
                params,
                key=key,
                owner=owner,
                priority=priority,
                run_at=run_at,
                deadline=deadline,
                unique=unique,
                on=on,
                wait=wait,
            )
        )

    def upload(
        self,
        content: bytes | IO[bytes],
        *,
        name: str,
        kind: str | None = None,
        params: Any = None,
        key: str | None = None,
        owner: str | None = None,
        wait: float | None = None,
    ) -> Job:
        """Hands a file over, by default to `document.analyze`. An open file is streamed."""
        return self._do(protocol.upload(content, name=name, kind=kind, params=params, key=key, owner=owner, wait=wait))

    def job(self, id: str) -> Job:
        """The job as it is now."""
        return self._do(protocol.job(id))

    def jobs(
        self,
        *,
        state: str | None = None,
        kind: str | None = None,
        owner: str | None = None,
        q: str | None = None,
    ) -> Iterator[Job]:
        """Jobs, newest first, got page by page as far as they are looked at."""
        query: dict[str, Any] = {"state": state, "kind": kind, "owner": owner, "q": q, "limit": 200}
        while True:
            page = self._do(protocol.jobs(query))
            yield from page.jobs
            if page.cursor is None:
                return
            query["cursor"] = page.cursor

    def result(self, id: str) -> Any:
        """What the job made; `None` where it made nothing. :class:`~mapae.errors.NotFinished` before its end."""
        return self._do(protocol.result(id))

    def cancel(self, id: str) -> Job:
        """A pending job is cancelled, a running one asked to stop."""
        return self._do(protocol.cancel(id))

    def retry(self, id: str) -> Job:
        """Sends a failed job back to work with a fresh budget."""
        return self._do(protocol.retry(id))

    def delete(self, id: str) -> None:
        """The job and its files go; a running one is stopped first."""
        self._do(protocol.delete(id))

    def wait(self, id: str, *, timeout: float | None = None) -> Job:
        """The job once its state is final, told by the server the moment it is. It is not an error when the job failed;
        `.raise_unless_succeeded()` makes it one. :class:`~mapae.errors.WaitTimeout` after `timeout` seconds;
        without one this waits as long as it takes.
        """
        until = None if timeout is None else time.monotonic() + timeout
        trouble = 0
        while True:
            asked = 0.0
            try:
                job = self.job(id)
                if job.ended:
                    return job
                ended = False
                for event in self._stream(protocol.events_path(id), None, until):
                    trouble, ended = 0, event.ended
                if ended:
                    continue
            except AllTold:
                continue
            except (Unavailable, Unreachable) as error:
                asked = getattr(error, "retry_after", None) or 0.0
            time.sleep(within(max(resting(trouble), asked), until, id))
            trouble += 1

    def events(self, id: str | None = None, *, after: str | None = None) -> Iterator[Event]:
        """What happens to a job, from its first event to its last; of all jobs that the key may see, from now on
        and without an end, where no id is given.

        `after` is the position of an event that was seen: it goes on there. A lost connection or a restarted
        server is resumed from the last position; no kept event is missed or told twice.
        """
        trouble = 0
        while True:
            ended = False
            try:
                for event in self._stream(protocol.events_path(id), after, None):
                    trouble = 0
                    if event.position is not None:
                        after, ended = event.position, event.ended
                    yield event
                if id is not None and ended:
                    return
            except AllTold:
                return
            except (Unavailable, Unreachable):
                pass
            time.sleep(resting(trouble))
            trouble += 1

    def _stream(self, path: str, after: str | None, until: float | None) -> Iterator[Event]:
        """One connection's events; it returns when the server or the line ends it, or the time is over."""
        parser = Parser()
        try:
            with self._http.stream("GET", path, **following(after, until)) as response:
                if response.status_code == 204:
                    raise AllTold
                if response.status_code >= 300:
                    raise problem(response.status_code, response.headers, response.read())
                for chunk in response.iter_bytes():
                    yield from parser.feed(chunk)
                    if until is not None and time.monotonic() >= until:
                        return
        except httpx.ReadTimeout:
            return
        except httpx.HTTPError as error:
            raise Unreachable(f"GET {path}: {type(error).__name__}") from error

    def _do(self, call: Call[T]) -> T:
        for attempt in range(len(PAUSES) + 1):
            try:
                return call.answer(self._http.request(**call.request()))
            except (Problem, httpx.TransportError) as error:
                pause = call.pause(attempt, error)
                if pause is None:
                    if isinstance(error, Problem):
                        raise
                    raise call.unanswered(error) from error
            time.sleep(pause)
        raise AssertionError("the last attempt has no pause")
