"""Handlers that mapae calls: an ASGI application, to be mounted in FastAPI, Starlette or any other.

    push = Push(secrets=["whsec_…"], api="http://mapae:7070")

    @push.handler("context.process", later=True)
    def process(params, ctx): ...

    app = FastAPI(lifespan=push.lifespan)
    app.mount("/mapae", push)                                     # POST /mapae/context.process
    app.router.routes.append(Route("/internal/v1/context/process", push.at("context.process")))    # or this one

A handler answers with its result (200), or `later`: 202 at once, and its end is told at the address in `Mapae-Callback`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, TypeVar

import httpx

from .call import Callback, Receive, Refused, Scope, Send, answer, read_body, read_callback, read_lease
from .context import AsyncContext
from .errors import Busy, LeaseLost, Problem, Unavailable, Unreachable, problem
from .failures import Stopped, WorkFailed, failed
from .handler import TIMEOUT, Handler, log_raised
from .model import Lease
from .protocol import dumps
from .signature import TOLERANCE, Secrets, SignatureInvalid

log = logging.getLogger("mapae")

F = TypeVar("F", bound=Callable[..., Any])
# Seconds that a handler has to end once it was told to stop.
GRACE = 10.0

# Seconds between tries to tell an end: doubling, with jitter. They stop where the job's deadline has passed.
PAUSES = (0.2, 15.0)

# Seconds for which an end is told again, where the call named no deadline.
TELLING_MAX = 300.0


@dataclass
class _Later:
    """Work that was accepted for later. A newer call of its job replaces `lease` and `callback`."""

    handler: Handler
    lease: Lease
    callback: Callback
    ctx: AsyncContext
    task: asyncio.Task[None] | None = None


class Push:
    """What mapae calls.

    `secrets` are those of the handler's configuration, several while they are rotated; a call that none of them signed
    within `tolerance` seconds is refused. Without secrets `unsigned=True` says that whoever reaches this may call.
    `api` is the address of mapae: ends are told there and nowhere else. Without it the call is believed, and the
    header that names the address is not covered by the signature.

    At most `slots` works are accepted for later at a time; more are answered 503, and come again without having used an
    attempt. When the process ends they have `drain` seconds, and are then handed back.
    """

    def __init__(
        self,
        *,
        secrets: str | Iterable[str] | None = None,
        unsigned: bool = False,
        api: str | None = None,
        slots: int = 16,
        tolerance: float = TOLERANCE,
        drain: float = 30.0,
        verify: bool | str = True,
    ) -> None:
        if (secrets is None) != unsigned:
            raise ValueError("give secrets, or say unsigned=True where nobody else can reach this")
        if slots < 1:
            raise ValueError("slots is at least 1")
        self._secrets = None if secrets is None else Secrets(secrets)
        self._api = api and api.rstrip("/")
        self._slots, self._tolerance, self._drain, self._verify = slots, tolerance, drain, verify
        self._handlers: dict[str, tuple[Handler, bool]] = {}
        self._later: dict[str, _Later] = {}
        self._http: httpx.AsyncClient | None = None
        self._draining = False

    def handler(self, kind: str, *, later: bool = False, timeout: float = TIMEOUT) -> Callable[[F], F]:
        """Makes a function the handler of a kind; see :mod:`mapae.handler` for what it may be."""

        def keep(function: F) -> F:
            if kind in self._handlers:
                raise ValueError(f"the kind {kind} has a handler already")
            self._handlers[kind] = (Handler(kind, function, timeout), later)
            return function

        return keep

    def at(self, kind: str) -> _At:
        """An ASGI application for this kind alone, whatever the address."""
        return _At(self, kind)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Any = None) -> AsyncIterator[None]:
        """For the `lifespan` of FastAPI and Starlette: drains when the application ends."""
        self._draining = False
        try:
            yield
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Accepts nothing more, lets what was accepted end, hands the rest back."""
        self._draining = True
        for later in self._later.values():
            later.ctx.drain()
        tasks = {later.task for later in self._later.values() if later.task}
        if tasks:
            await asyncio.wait(tasks, timeout=self._drain)
        for later in self._later.values():
            later.ctx.stop("draining")
        left = {later.task for later in self._later.values() if later.task}
        if left:
            await asyncio.wait(left, timeout=GRACE)
        for task in left:
            task.cancel()
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._own_lifespan(receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        await self.answer(path.strip("/"), scope, receive, send)

    async def answer(self, kind: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request for work of this kind."""
        if scope["type"] != "http":
            raise RuntimeError("mapae calls over HTTP only")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            if scope["method"] != "POST":
                raise Refused(405, "method-not-allowed", "Only POST is answered here.", {"allow": "POST"})
            body = await read_body(receive)
            self._prove(headers, body)
            if kind not in self._handlers:
                raise Refused(404, "kind-unknown", "There is no handler for this kind here.")
            handler, later = self._handlers[kind]
            callback = read_callback(headers, self._api)
            lease = read_lease(kind, headers, body, callback)
            if later:
                self._accept(handler, lease, callback)
                await answer(send, 202, b"")
                return
            result = await self._answered(handler, lease, callback)
            await answer(send, 200, dumps(result))
        except Refused as refused:
            told = {"type": f"urn:mapae:problem:{refused.code}", "code": refused.code}
            told |= {"title": refused.title, "status": refused.status}  # type: ignore[dict-item]
            refused.headers["content-type"] = "application/problem+json"
            await answer(send, refused.status, dumps(told), refused.headers)

    def _prove(self, headers: Mapping[str, str], body: bytes) -> None:
        if self._secrets is None:
            return
        try:
            self._secrets.verify(headers, body, tolerance=self._tolerance)
        except SignatureInvalid:
            raise Refused(401, "signature-invalid", "The signature is missing, wrong or too old.") from None

    async def _answered(self, handler: Handler, lease: Lease, callback: Callback | None) -> Any:
        """The handler's result, or its failure as an answer."""

        async def report(verb: str, body: dict[str, Any], /) -> bool:
            return False if callback is None else await self._tell(callback, verb, body)

        ctx = AsyncContext(lease, report)
        try:
            return await asyncio.wait_for(handler.run(lease.params, ctx), handler.timeout)
        except asyncio.TimeoutError as late:
            ctx.stop("timeout")
            raise Refused(504, "timeout", "The handler took too long.") from late
        except Exception as error:
            raise self._as_answer(error, lease) from error

    def _as_answer(self, error: Exception, lease: Lease) -> Refused:
        if not isinstance(error, (WorkFailed, Stopped)):
            log_raised(error, lease.id, lease.kind)
        failure = failed(error)
        if failure.retry_after is not None:
            seconds = str(max(1, round(failure.retry_after)))
            return Refused(503, failure.code, failure.message, {"retry-after": seconds})
        if failure.kind == "stale":
            return Refused(410, "stale", failure.message)
        return Refused(422 if failure.kind == "terminal" else 500, failure.code, failure.message)

    def _accept(self, handler: Handler, lease: Lease, callback: Callback | None) -> None:
        """When this returns, the work has begun and its end will be told, or its deadline passes."""
        if callback is None:
            raise Refused(
                422, "callback-missing", "The call does not say where its end is told: set http.url in mapae."
            )
        at_work = self._later.get(lease.id)
        if at_work is not None and at_work.ctx.stopped is None:
            # The same job, called again because our 202 was lost, or because its lease was: the work goes on, and
            # its end is told under the newest right.
            at_work.lease, at_work.callback = lease, callback
            return
        if self._draining or len(self._later) >= self._slots:
            raise Refused(503, "busy", "There is as much work here as is taken at a time.", {"retry-after": "1"})

        later = _Later(handler, lease, callback, self._context(lease))
        self._later[lease.id] = later
        later.task = asyncio.create_task(self._work(later))

    def _context(self, lease: Lease) -> AsyncContext:
        async def report(verb: str, body: dict[str, Any], /) -> bool:
            while True:
                later = self._later.get(lease.id)
                if later is None:
                    raise LeaseLost(409, "lease-lost", "The work has ended.")
                callback = later.callback
                try:
                    return await self._tell(callback, verb, body)
                except LeaseLost:
                    if later.callback is callback:
                        raise

        ctx = AsyncContext(lease, report)
        if self._draining:
            ctx.drain()
        return ctx

    async def _work(self, later: _Later) -> None:
        job = later.lease.id
        try:
            while await self._attempt(later):
                later.ctx = self._context(later.lease)
        finally:
            if self._later.get(job) is later:
                del self._later[job]

    async def _attempt(self, later: _Later) -> bool:
        """Whether the job was called again for another attempt while the end of this one was told."""
        handler, lease, ctx = later.handler, later.lease, later.ctx
        work = asyncio.create_task(handler.run(lease.params, ctx))
        work.add_done_callback(lambda work: work.cancelled() or work.exception())
        stopped = asyncio.create_task(ctx.until_stopped())
        try:
            timeout = _left(lease.deadline, handler.timeout)
            await asyncio.wait({work, stopped}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                ctx.stop("timeout")
                if handler.is_async:
                    work.cancel()
                await asyncio.wait({work}, timeout=0 if ctx.stopped == "draining" else GRACE)
            told = _outcome(work, ctx)
            if told is None:
                return False
            again = await self._end(later, *told)
            log.info("work ended job_id=%s kind=%s as=%s", lease.id, lease.kind, told[0])
            return again
        except LeaseLost:
            log.warning("the lease was lost, the result is dropped job_id=%s kind=%s", lease.id, lease.kind)
        except (Problem, Unreachable) as error:
            log.error("the end could not be told, the deadline will pass job_id=%s: %s", lease.id, error)
        finally:
            stopped.cancel()
            # A thread that does not end keeps its place.
            if not work.done():
                await asyncio.wait({work})
        return False

    async def _end(self, later: _Later, verb: str, body: dict[str, Any]) -> bool:
        """Told until it was heard: the first answer stands, however often it is told. Whether there was a newer call after
        an end that lets the job go on."""
        until = time.monotonic() + _left(later.lease.deadline, TELLING_MAX)
        trouble = 0
        while True:
            callback = later.callback
            try:
                await self._tell(callback, verb, body)
                return later.callback is not callback and verb != "complete"
            except (Busy, Unavailable, Unreachable) as error:
                first, most = PAUSES
                pause = min(most, first * (1 << min(trouble, 10))) * random.uniform(0.5, 1.0)
                if time.monotonic() + pause > until:
                    raise
                log.warning("an end is told again job_id=%s: %s", later.lease.id, error)
                await asyncio.sleep(pause)
                trouble += 1
            except LeaseLost:
                # The newer call came before this end was heard: it is the end of that one.
                if later.callback is callback:
                    raise
            except Problem as refused:
                if verb != "complete":
                    raise
                verb, body = "fail", {"code": "result-refused", "message": refused.title, "class": "terminal"}

    async def _tell(self, callback: Callback, verb: str, body: dict[str, Any]) -> bool:
        if self._http is None:
            self._http = httpx.AsyncClient(verify=self._verify, follow_redirects=False, timeout=30.0)
        headers = {"content-type": "application/json", "mapae-token": callback.token}
        try:
            answer = await self._http.post(f"{callback.lease}/{verb}", content=dumps(body), headers=headers)
        except httpx.TransportError as error:
            raise Unreachable(type(error).__name__) from error
        if answer.status_code != 200:
            raise problem(answer.status_code, answer.headers, answer.content)
        try:
            return bool(answer.json()["cancel_requested"])
        except (ValueError, KeyError, TypeError) as error:
            raise Unreachable("the answer is none of mapae's") from error

    async def _own_lifespan(self, receive: Receive, send: Send) -> None:
        """Where this is the whole application."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._draining = False
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return


class _At:
    """One kind at one address."""

    def __init__(self, push: Push, kind: str) -> None:
        self._push, self._kind = push, kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._push.answer(self._kind, scope, receive, send)


def _outcome(work: asyncio.Task[Any], ctx: AsyncContext) -> tuple[str, dict[str, Any]] | None:
    if not work.done() or work.cancelled():
        error: BaseException | None = Stopped(ctx.stopped or "draining")
    else:
        error = work.exception()
    if ctx.stopped == "lease-lost" or (isinstance(error, Stopped) and error.reason == "lease-lost"):
        return None
    if error is None:
        return "complete", {"result": work.result()}
    if isinstance(error, Stopped) and error.reason == "draining":
        return "release", {}
    if not isinstance(error, (WorkFailed, Stopped)):
        log_raised(error, ctx.lease.id, ctx.lease.kind)
    return "fail", failed(error).report()


def _left(deadline: datetime | None, most: float) -> float:
    """Seconds until the deadline, by this machine's clock: that is only advice, so never less than one."""
    if deadline is None:
        return most
    return min(most, max(1.0, (deadline - datetime.now(timezone.utc)).total_seconds()))
