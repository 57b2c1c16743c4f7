"""Reports under leases' tokens, together: whatever waits when the last round trip has returned goes into the next.

Nobody waits for a timer, and one that comes alone is sent alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from .errors import Unreachable, problem
from .model import Lease
from .protocol import dumps

# Most reports in one request, and most bytes: the server takes 1,000 and 16 MiB.
REPORTS_MAX = 200
BYTES_MAX = 4 << 20


@dataclass
class _Waiting:
    """One report, and who waits for what comes of it: whether the job's owner wants it stopped."""

    job: str
    verb: str
    body: dict[str, Any]
    size: int
    told: asyncio.Future[bool]


class Teller:
    """Sends by `post(path, body)`, which gives the answer's JSON or raises what the server said."""

    def __init__(self, post: Callable[[str, bytes], Awaitable[Any]]) -> None:
        self._post = post
        self._waiting: list[_Waiting] = []
        self._sending: asyncio.Task[None] | None = None

    async def tell(self, lease: Lease, verb: str, body: dict[str, Any]) -> bool:
        """Returns once it is kept. Raises as the call alone would."""
        said = {"token": lease.token, **body}
        told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(lease.id, verb, said, len(dumps(said)), told))
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())
        return await told

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                await self._send(self._next())
        finally:
            self._sending = None

    def _next(self) -> list[_Waiting]:
        count, size = 0, 0
        for report in self._waiting[:REPORTS_MAX]:
            size += report.size
            if count and size > BYTES_MAX:
                break
            count += 1
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    async def _send(self, reports: list[_Waiting]) -> None:
        try:
            if len(reports) == 1:
                report = reports[0]
                answer = await self._post(f"/v1/leases/{report.job}/{report.verb}", dumps(report.body))
                answers = [{"status": 200, **answer}]
            else:
                items = [{"job": report.job, "do": report.verb, **report.body} for report in reports]
                answers = (await self._post("/v1/leases/batch", dumps({"items": items})))["items"]
            for report, answer in zip(reports, answers, strict=True):
                _resolve(report.told, answer)
        except BaseException as error:
            failed = error if isinstance(error, Exception) else Unreachable("The report was not sent to its end.")
            if isinstance(error, (KeyError, TypeError, ValueError)):
                failed = Unreachable("the answer is none of mapae's")
            for report in reports:
                if not report.told.done():
                    report.told.set_exception(failed)
            if not isinstance(error, Exception):
                raise


def _resolve(told: asyncio.Future[bool], answer: dict[str, Any]) -> None:
    if told.done():
        return
    if answer["status"] == 200:
        told.set_result(bool(answer["cancel_requested"]))
        return
    said = {"code": answer["code"], "title": "The server refused the report."}
    told.set_exception(problem(answer["status"], {}, json.dumps(said).encode()))
