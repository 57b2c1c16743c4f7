"""A pull worker: leases jobs over HTTP, runs their handlers, tells each job's end.

    lease (long poll, as many as there are free slots) ─► handler ─► complete | fail | release

A job's end is told under its lease's token. A worker that has lost the lease is refused, and so changes nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import re
import signal
import socket
import time
from collections.abc import Callable
from typing import Any, TypeVar

import httpx

from .context import AsyncContext
from .errors import Busy, LeaseLost, NotFound, Problem, Unavailable, Unreachable, problem
from .failures import Stopped, WorkFailed, failed
from .handler import TIMEOUT, Handler, log_raised
from .model import Lease
from .protocol import Server, dumps
from .pulse import Pulse
from .teller import Teller

log = logging.getLogger("mapae")

F = TypeVar("F", bound=Callable[..., Any])

# Most jobs that one worker runs at a time: what the server gives at once.
SLOTS_MAX = 100

# Seconds that a handler has to end once it was told to stop.
GRACE = 10.0

# Seconds between tries while the server does not answer: doubling, with jitter.
PAUSES = (0.2, 15.0)

# Seconds for which a job's end is told again while nobody answers. After that the lease runs out.
TELLING_MAX = 300.0


class Worker:
    """Runs handlers for jobs of a server.

    `slots` jobs run at a time. `lease` seconds without a heartbeat lose a job, which bounds how long the jobs of a
    machine that vanished wait. A stop signal (or `stop()`) ends the leasing; what runs has `drain` seconds to end
    and is then handed back, which uses no attempt. A second signal hands back at once.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        name: str | None = None,
        slots: int = 4,
        lease: float = 30.0,
        drain: float = 30.0,
        wait: float = 30.0,
        verify: bool | str = True,
    ) -> None:
        if not 1 <= slots <= SLOTS_MAX:
            raise ValueError(f"slots is 1 to {SLOTS_MAX}")
        if lease < 1:
            raise ValueError("a lease is at least a second")
        self.server = Server.at(url, key, verify)
        self.name = name or re.sub(r"[^A-Za-z0-9._-]", "-", f"{socket.gethostname()}-{os.getpid()}")[:64]
        self._slots, self._lease, self._drain, self._wait = slots, lease, drain, wait
        self._handlers: dict[str, Handler] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._at_once: asyncio.Event | None = None

    def job(self, kind: str, *, timeout: float = TIMEOUT) -> Callable[[F], F]:
        """Makes a function the handler of a kind; see :mod:`mapae.handler` for what it may be. After `timeout` seconds it
        is told to stop, and the attempt has failed."""

        def keep(function: F) -> F:
            self.add(kind, function, timeout=timeout)
            return function

        return keep

    def add(self, kind: str, function: Callable[..., Any], *, timeout: float = TIMEOUT) -> None:
        """As :meth:`job`, without a decorator."""
        if kind in self._handlers:
            raise ValueError(f"the kind {kind} has a handler already")
        self._handlers[kind] = Handler(kind, function, timeout)

    def run(self) -> None:
        """Works until SIGTERM, SIGINT or `stop()`. An error of the server that no waiting can heal is raised: a key
        without the scope `jobs:work`, for example."""
        asyncio.run(self._run())

    def stop(self) -> None:
        """As a stop signal; from any thread. Called twice, it hands back at once."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._signalled)

    async def serve(self) -> None:
        """As :meth:`run`, in a loop of the caller's and without signals. Cancelled, it hands back at once."""
        if not self._handlers:
            raise ValueError("there is no handler: register one with @worker.job(kind)")
        self._loop, self._stop, self._at_once = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        async with httpx.AsyncClient(**self.server.options()) as http:
            round = _Round(self, http, self._stop, self._at_once)
            await round.go()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        try:
            await self.serve()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _signalled(self) -> None:
        if self._stop is None or self._at_once is None:
            return
        (self._at_once if self._stop.is_set() else self._stop).set()


class _Round:
    """One `serve`, from its start to its end."""

    def __init__(self, worker: Worker, http: httpx.AsyncClient, stop: asyncio.Event, at_once: asyncio.Event) -> None:
        self._worker = worker
        self._http = http
        self._stop, self._at_once = stop, at_once
        self._running: dict[asyncio.Task[None], AsyncContext] = {}
        # Handlers that go on although they were told to stop. They keep their slots: there are never more of them.
        self._stuck: set[asyncio.Task[Any]] = set()
        self._pulse = Pulse(worker.server, self._hear)
        self._teller = Teller(self._post)

    async def go(self) -> None:
        await self._pulse.start()
        log.info("worker started name=%s kinds=%s", self._worker.name, ",".join(self._worker._handlers))
        try:
            await self._lease_and_run()
            await self._drain()
        finally:
            await self._hand_back()
            await self._pulse.end()
            log.info("worker ended name=%s", self._worker.name)

    async def _lease_and_run(self) -> None:
        stop = asyncio.create_task(self._stop.wait())
        trouble = 0
        try:
            while not stop.done():
                free = self._worker._slots - len(self._running) - len(self._stuck)
                if free <= 0:
                    busy = {stop, *self._running, *self._stuck}
                    await asyncio.wait(busy, return_when=asyncio.FIRST_COMPLETED)
                    continue
                try:
                    await self._lease_unless(stop, free)
                    trouble = 0
                except (Busy, Unavailable, Unreachable) as error:
                    log.warning("no jobs can be leased, it is tried again: %s", error)
                    await asyncio.wait({stop}, timeout=_pause(trouble))
                    trouble += 1
        finally:
            stop.cancel()

    async def _lease_unless(self, stop: asyncio.Task[Any], free: int) -> None:
        leasing = asyncio.create_task(self._lease(free))
        try:
            await asyncio.wait({stop, leasing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # The server takes back what it claimed for a client that is gone.
            leasing.cancel()
            await asyncio.wait({leasing})
            if not leasing.cancelled() and leasing.exception() is None:
                for lease in leasing.result():
                    self._begin(lease)
        if not leasing.cancelled():
            leasing.result()

    async def _lease(self, free: int) -> list[Lease]:
        worker = self._worker
        body = {
            "worker": worker.name,
            "kinds": list(worker._handlers),
            "max": free,
            "wait": f"{round(worker._wait * 1000)}ms",
            "lease": f"{round(worker._lease * 1000)}ms",
        }
        answer = await self._post("/v1/leases", dumps(body), timeout=worker._wait + 15)
        return [Lease.of(raw) for raw in answer["jobs"]]

    def _begin(self, lease: Lease) -> None:
        handler = self._worker._handlers[lease.kind]
        token = lease.token or ""
        self._pulse.hold(lease.id, token, self._worker._lease, handler.timeout + 2 * GRACE + TELLING_MAX)

        async def report(verb: str, body: dict[str, Any], /) -> bool:
            return await self._teller.tell(lease, verb, body)

        ctx = AsyncContext(lease, report)
        if self._stop.is_set():
            ctx.drain()
        task = asyncio.create_task(self._work(handler, lease, ctx))
        self._running[task] = ctx
        task.add_done_callback(lambda task: self._running.pop(task, None) and None)

    def _hear(self, token: str, reason: str) -> None:
        for ctx in self._running.values():
            if ctx.lease.token == token:
                ctx.stop(reason)

    async def _work(self, handler: Handler, lease: Lease, ctx: AsyncContext) -> None:
        begun = time.monotonic()
        work = asyncio.create_task(handler.run(lease.params, ctx))
        # What nobody asks for would be logged with its message, which may be content.
        work.add_done_callback(lambda work: work.cancelled() or work.exception())
        stopped = asyncio.create_task(ctx.until_stopped())
        try:
            await asyncio.wait({work, stopped}, timeout=handler.timeout, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                ctx.stop("timeout")
                # An async handler is stopped where it waits; a sync one sees it when it looks.
                if handler.is_async:
                    work.cancel()
                await asyncio.wait({work}, timeout=0 if ctx.stopped == "draining" else GRACE)
            verb, body = self._outcome(work, ctx)
            if verb is not None:
                await self._end(lease, verb, body)
                seconds = time.monotonic() - begun
                log.info("job ended job_id=%s kind=%s as=%s seconds=%.3f", lease.id, lease.kind, verb, seconds)
        except (LeaseLost, NotFound):
            log.warning("the lease was lost, the result is dropped job_id=%s kind=%s", lease.id, lease.kind)
        except (Problem, Unreachable) as error:
            log.error("a job's end could not be told, its lease will run out job_id=%s: %s", lease.id, error)
        finally:
            stopped.cancel()
            self._pulse.drop(lease.token or "")
            if not work.done():
                self._stuck.add(work)
                work.add_done_callback(self._stuck.discard)

    def _outcome(self, work: asyncio.Task[Any], ctx: AsyncContext) -> tuple[str | None, dict[str, Any]]:
        """What to tell, `None` where there is nobody to tell it to."""
        reason = ctx.stopped
        if reason == "lease-lost":
            return None, {}
        if not work.done() or work.cancelled():
            error: BaseException | None = Stopped(reason or "draining")
        else:
            error = work.exception()
        if error is None:
            return "complete", {"result": work.result()}
        if isinstance(error, Stopped) and error.reason == "lease-lost":
            return None, {}
        if isinstance(error, Stopped) and error.reason == "draining":
            return "release", {}
        if not isinstance(error, (WorkFailed, Stopped)):
            log_raised(error, ctx.lease.id, ctx.lease.kind)
        return "fail", failed(error).report()

    async def _end(self, lease: Lease, verb: str, body: dict[str, Any]) -> None:
        """Told until it was heard: the first answer stands, however often it is told."""
        until = time.monotonic() + TELLING_MAX
        for trouble in itertools.count():
            try:
                await self._teller.tell(lease, verb, body)
                return
            except (Busy, Unavailable, Unreachable) as error:
                pause = _pause(trouble)
                if time.monotonic() + pause > until:
                    raise
                log.warning("a job's end is told again job_id=%s: %s", lease.id, error)
                await asyncio.sleep(pause)
            except (LeaseLost, NotFound):
                raise
            except Problem as refused:
                if verb != "complete":
                    raise
                # Too large, for example: it would be the next time, too.
                verb, body = "fail", {"code": "result-refused", "message": refused.title, "class": "terminal"}

    async def _post(self, path: str, body: bytes, timeout: float = 30.0) -> Any:
        try:
            answer = await self._http.post(
                path, content=body, headers={"content-type": "application/json"}, timeout=timeout
            )
        except httpx.TransportError as error:
            raise Unreachable(f"{type(error).__name__}") from error
        if answer.status_code != 200:
            raise problem(answer.status_code, answer.headers, answer.content)
        try:
            return answer.json()
        except ValueError as error:
            raise Unreachable("the answer is none of mapae's") from error

    async def _drain(self) -> None:
        if not self._running:
            return
        log.info("draining jobs=%d", len(self._running))
        for ctx in self._running.values():
            ctx.drain()
        at_once = asyncio.create_task(self._at_once.wait())
        ended = asyncio.create_task(asyncio.wait(set(self._running)))
        await asyncio.wait({at_once, ended}, timeout=self._worker._drain, return_when=asyncio.FIRST_COMPLETED)
        at_once.cancel()
        ended.cancel()

    async def _hand_back(self) -> None:
        """What still runs is given back. A thread that does not look whether it should stop goes on for nothing."""
        for ctx in self._running.values():
            ctx.stop("draining")
        if self._running:
            await asyncio.wait(set(self._running), timeout=GRACE)
        for task in [*self._running, *self._stuck]:
            task.cancel()


def _pause(trouble: int) -> float:
    first, most = PAUSES
    doubled: float = first * (1 << min(trouble, 10))
    return min(most, doubled) * random.uniform(0.5, 1.0)
