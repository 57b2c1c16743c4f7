"""What a handler knows of its job, and what it may tell while it works."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from .errors import LeaseLost
from .failures import Stopped
from .model import Lease

T = TypeVar("T")

# Progress that comes sooner after the last, in seconds, is not sent, unless it is the stage's first or last.
PROGRESS_PAUSE = 0.2


class Report(Protocol):
    """Tells the server something under the lease's token; gives whether the job's owner wants it stopped."""

    def __call__(self, verb: str, body: dict[str, Any], /) -> Awaitable[bool]: ...


class AsyncContext:
    """For async handlers."""

    def __init__(self, lease: Lease, report: Report) -> None:
        self.lease = lease
        self._report = report
        self._reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._draining = False
        self._checkpoints = dict(lease.checkpoints)
        self._told: tuple[str, float] = ("", 0.0)

    @property
    def stopped(self) -> str | None:
        """Why the work has to stop, `None` where it may go on."""
        return self._reason.result() if self._reason.done() else None

    @property
    def draining(self) -> bool:
        """The process is about to end: work that cannot end soon may stop by `raise Stopped("draining")`, which uses no
        attempt."""
        return self._draining

    def check(self) -> None:
        """Raises :class:`~mapae.failures.Stopped` where the work has to stop. Costs nothing."""
        if (reason := self.stopped) is not None:
            raise Stopped(reason)

    async def progress(self, done: int, of: int, stage: str = "") -> None:
        """Shown to people. Most are not sent: at most some in a second."""
        now = time.monotonic()
        told, at = self._told
        if stage == told and done < of and now - at < PROGRESS_PAUSE:
            self.check()
            return
        self._told = (stage, now)
        await self._tell("progress", {"stage": stage, "done": done, "of": of})

    async def checkpoint(self, stage: str, output: Any, seconds: float = 0.0) -> None:
        """The stage is done: later attempts find its output in `lease.checkpoints`. The name is 1 to 64 of a-z, 0-9,
        '.', '_' and '-'."""
        await self._tell("checkpoint", {"stage": stage, "output": output, "seconds": seconds})
        self._checkpoints[stage] = output

    async def stage(self, name: str, work: Callable[[], T | Awaitable[T]]) -> T:
        """What `work` gives, or gave in an earlier attempt: a stage that is done is not run again."""
        if name in self._checkpoints:
            return self._checkpoints[name]  # type: ignore[no-any-return]
        begun = time.monotonic()
        value = work()
        if inspect.isawaitable(value):
            value = await value
        await self.checkpoint(name, value, time.monotonic() - begun)
        return value

    async def _tell(self, verb: str, body: dict[str, Any]) -> None:
        self.check()
        try:
            cancel_requested = await self._report(verb, body)
        except LeaseLost as lost:
            self.stop("lease-lost")
            raise Stopped("lease-lost") from lost
        if cancel_requested:
            self.stop("cancelled")
        self.check()

    def stop(self, reason: str) -> None:
        """For whoever runs the handler. The first reason stands."""
        if not self._reason.done():
            self._reason.set_result(reason)

    def drain(self) -> None:
        """For whoever runs the handler."""
        self._draining = True

    async def until_stopped(self) -> str:
        """For whoever runs the handler."""
        return await asyncio.shield(self._reason)


class Context:
    """For sync handlers, the same without `await`. They run in threads of their own."""

    def __init__(self, ctx: AsyncContext, loop: asyncio.AbstractEventLoop) -> None:
        self._ctx = ctx
        self._loop = loop

    @property
    def lease(self) -> Lease:
        """The job and the right to do it."""
        return self._ctx.lease

    @property
    def stopped(self) -> str | None:
        """Why the work has to stop, `None` where it may go on."""
        return self._ctx.stopped

    @property
    def draining(self) -> bool:
        """As :attr:`AsyncContext.draining`."""
        return self._ctx.draining

    def check(self) -> None:
        """Raises :class:`~mapae.failures.Stopped` where the work has to stop. Costs nothing."""
        self._ctx.check()

    def progress(self, done: int, of: int, stage: str = "") -> None:
        """As :meth:`AsyncContext.progress`."""
        self._wait(self._ctx.progress(done, of, stage))

    def checkpoint(self, stage: str, output: Any, seconds: float = 0.0) -> None:
        """As :meth:`AsyncContext.checkpoint`."""
        self._wait(self._ctx.checkpoint(stage, output, seconds))

    def stage(self, name: str, work: Callable[[], T]) -> T:
        """As :meth:`AsyncContext.stage`."""
        checkpoints = self._ctx._checkpoints
        if name in checkpoints:
            return checkpoints[name]  # type: ignore[no-any-return]
        begun = time.monotonic()
        value = work()
        self.checkpoint(name, value, time.monotonic() - begun)
        return value

    def _wait(self, told: Any) -> None:
        try:
            asyncio.run_coroutine_threadsafe(told, self._loop).result()
        except RuntimeError as error:  # the loop is closed: the process is ending without this thread
            told.close()
            raise Stopped("lease-lost") from error
