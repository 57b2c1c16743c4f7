"""Plain functions as handlers: what they take and give, and how they are run.

A handler is `def work(params)` or `def work(params, ctx)`, sync or async. Where `params` is annotated with a
dataclass or a Pydantic model, it is given one. It returns what JSON has, a dataclass or a model.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
import threading
import traceback
import typing
from collections.abc import Callable
from typing import Any

from .context import AsyncContext, Context
from .failures import Terminal
from .protocol import dumps

log = logging.getLogger("mapae")

# A handler that runs longer is told to stop, unless it was registered with a time of its own; in seconds.
TIMEOUT = 1800.0


class Handler:
    """One kind's function."""

    def __init__(self, kind: str, function: Callable[..., Any], timeout: float) -> None:
        if timeout <= 0:
            raise ValueError("a timeout is more than 0 seconds")
        self.kind = kind
        self.timeout = timeout
        self._function = function
        self.is_async = inspect.iscoroutinefunction(inspect.unwrap(function))
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        takes = [p for p in inspect.signature(function).parameters.values() if p.kind in positional]
        if not 1 <= len(takes) <= 2:
            raise TypeError("a handler takes the params and, where it wants it, the context")
        self._wants_context = len(takes) == 2
        self._params = _annotation(function, takes[0].name)

    async def run(self, params: Any, ctx: AsyncContext) -> Any:
        """What the function gives, as JSON has it. A sync one has a thread of its own, which goes on where this is
        cancelled: nothing can end a thread."""
        arguments: list[Any] = [_read(self._params, params)]
        if self.is_async:
            if self._wants_context:
                arguments.append(ctx)
            return _write(await self._function(*arguments))
        if self._wants_context:
            arguments.append(Context(ctx, asyncio.get_running_loop()))
        return _write(await in_thread(self._function, arguments, f"mapae-{self.kind}"))


async def in_thread(function: Callable[..., Any], arguments: list[Any], name: str) -> Any:
    """Runs it in a thread that does not keep the process alive."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def tell(value: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)

    def work() -> None:
        value, error = None, None
        try:
            value = function(*arguments)
        except StopIteration as raised:  # a future refuses it
            error = RuntimeError(type(raised).__name__)
        except BaseException as raised:
            error = raised  # type: ignore[assignment]
        try:
            loop.call_soon_threadsafe(tell, value, error)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    threading.Thread(target=work, name=name, daemon=True).start()
    return await done


def log_raised(error: BaseException, job: str, kind: str) -> None:
    """Where a handler raised, without what: the message of an exception may quote the job's content."""
    where = "".join(traceback.format_list(traceback.extract_tb(error.__traceback__)[-5:]))
    log.error("handler raised %s job_id=%s kind=%s\n%s", type(error).__name__, job, kind, where.rstrip())


def _annotation(function: Callable[..., Any], name: str) -> Any:
    try:
        return typing.get_type_hints(function).get(name)
    except (NameError, TypeError):  # names of another scope: the params are given as they are
        return None


def _read(wanted: Any, params: Any) -> Any:
    refused = Terminal("params-invalid", "The params are not what the handler takes.")
    if hasattr(wanted, "model_validate"):
        try:
            return wanted.model_validate(params)
        except ValueError as error:
            raise refused from error
    if dataclasses.is_dataclass(wanted) and isinstance(wanted, type):
        try:
            return wanted(**params)
        except (TypeError, ValueError) as error:
            raise refused from error
    return params


def _write(result: Any) -> Any:
    if hasattr(result, "model_dump"):
        result = result.model_dump(mode="json")
    elif dataclasses.is_dataclass(result) and not isinstance(result, type):
        result = dataclasses.asdict(result)
    try:
        dumps(result)
    except (TypeError, ValueError, RecursionError) as error:
        raise Terminal("result-not-json", "The handler gave what JSON cannot hold.") from error
    return result
