from __future__ import annotations

import ctypes
import logging
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from conftest import AT_MOST

from mapae import AsyncContext, Context, Mapae, Retryable, RetryAfter, Stale, Stopped, Terminal, Worker, errors
from mapae.testing import Server


@dataclass
class Pair:
    a: int
    b: int


def test_plain_functions_are_handlers_with_what_they_are_annotated_with(
    server: Server, client: Mapae, working: Callable[..., Any]
) -> None:
    worker = Worker(server.url, server.key)

    @worker.job("swapped")
    def swapped(params: Pair) -> Pair:
        return Pair(params.b, params.a)

    @worker.job("swapped-later")
    async def swapped_later(params: dict[str, int], ctx: AsyncContext) -> list[int]:
        await ctx.progress(1, 2)
        return [params["b"], await ctx.stage("read", lambda: params["a"])]

    with working(worker):
        job = client.submit("swapped", {"a": 1, "b": 2}, wait=30)
        assert client.result(job.id) == {"a": 2, "b": 1}
        job = client.submit("swapped-later", {"a": 1, "b": 2}, wait=30)
        assert client.result(job.id) == [2, 1]
        job = client.submit("swapped", {"a": 1, "c": 2}, wait=30)
        assert job.failure and (job.failure.code, job.attempt) == ("params-invalid", 1)


def test_each_way_to_fail_ends_as_it_says_and_tells_no_content(
    server: Server, client: Mapae, working: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="mapae")
    worker = Worker(server.url, server.key)

    @worker.job("quick")
    def quick(params: dict[str, Any], ctx: Context) -> Any:
        how, attempt = params["how"], ctx.lease.attempt
        if how == "raise":
            raise ValueError(params["words"])
        if how == "retry" and attempt == 1:
            raise Retryable("not-yet", "Not yet.")
        if how == "terminal":
            raise Terminal("too-odd", "Too odd.")
        if how == "stale":
            raise Stale("gone", "It is gone.")
        if how == "no-json":
            return {1, 2}
        return attempt

    with working(worker):
        hows = ("raise", "retry", "terminal", "stale", "no-json")
        jobs = {how: client.submit("quick", {"how": how, "words": "customer's"}) for how in hows}
        ended = {how: client.wait(job.id, timeout=AT_MOST) for how, job in jobs.items()}
    told = {how: (job.state, job.attempt, job.failure and job.failure.code) for how, job in ended.items()}
    assert told == {
        "raise": ("failed", 2, "handler-raised"),
        "retry": ("succeeded", 2, None),
        "terminal": ("failed", 1, "too-odd"),
        "stale": ("stale", 1, "gone"),
        "no-json": ("failed", 1, "result-not-json"),
    }
    assert "customer" not in str([job.raw for job in ended.values()]) + caplog.text + server.log()
    assert "ValueError" in caplog.text and "test_worker.py" in caplog.text


def test_ends_that_come_together_are_told_together_and_each_by_itself(
    server: Server, client: Mapae, working: Callable[..., Any]
) -> None:
    worker, together = Worker(server.url, server.key, slots=20), threading.Barrier(20)

    @worker.job("together")
    def at_once(params: dict[str, int], ctx: Context) -> Any:
        together.wait(AT_MOST)
        if params["n"] == 7:
            raise Terminal("too-odd", "The number is odd.")
        return params["n"]

    jobs = [client.submit("together", {"n": n}) for n in range(20)]
    with working(worker):
        ended = [client.wait(job.id, timeout=AT_MOST) for job in jobs]
    assert [job.state for job in ended] == ["succeeded"] * 7 + ["failed"] + ["succeeded"] * 12
    assert [client.result(job.id) for n, job in enumerate(jobs) if n != 7] == [n for n in range(20) if n != 7]


def test_what_waits_for_somebody_busy_or_is_handed_back_uses_no_attempt(
    server: Server, client: Mapae, working: Callable[..., Any]
) -> None:
    worker, calls = Worker(server.url, server.key), []

    @worker.job("throttled")
    def throttled(params: Any, ctx: Context) -> None:
        calls.append(ctx.lease.attempt)
        if len(calls) == 1:
            raise RetryAfter(0.01)
        if len(calls) == 2:
            raise Stopped("draining")

    with working(worker):
        job = client.submit("throttled", wait=30)
    assert (job.state, job.attempt, calls) == ("succeeded", 1, [1, 1, 1])


def test_a_stage_that_is_done_is_not_run_again(server: Server, client: Mapae, working: Callable[..., Any]) -> None:
    worker, ran = Worker(server.url, server.key), []

    @worker.job("quick")
    def staged(params: Any, ctx: Context) -> Any:
        pages = ctx.stage("read", lambda: ran.append("read") or ["a", "b"])
        if ctx.lease.attempt == 1:
            raise Retryable("not-yet", "Not yet.")
        return pages

    with working(worker):
        job = client.submit("quick", wait=30)
        assert (client.result(job.id), job.attempt, ran) == (["a", "b"], 2, ["read"])


def test_work_that_holds_the_interpreter_for_longer_than_its_lease_is_run_once(
    server: Server, client: Mapae, working: Callable[..., Any]
) -> None:
    worker, calls = Worker(server.url, server.key, lease=2.0), []

    @worker.job("stubborn")
    def stubborn(params: Any) -> str:
        calls.append(1)
        # PyDLL keeps the interpreter's lock: no other thread of this process runs meanwhile.
        ctypes.PyDLL(None).usleep(3_000_000)
        return "done"

    with working(worker):
        job = client.submit("stubborn", wait=30)
        assert (job.state, job.attempt, calls) == ("succeeded", 1, [1])


def test_a_job_that_its_owner_cancels_is_told_and_stops(
    server: Server, client: Mapae, working: Callable[..., Any]
) -> None:
    worker = Worker(server.url, server.key, lease=2.0)
    begun, told = threading.Event(), threading.Event()

    @worker.job("long")
    async def long(params: Any, ctx: AsyncContext) -> None:
        begun.set()
        try:
            await ctx.until_stopped()
            ctx.check()
        finally:
            told.set()

    with working(worker):
        job = client.submit("long")
        assert begun.wait(AT_MOST)
        assert client.cancel(job.id).cancel_requested
        assert client.wait(job.id, timeout=AT_MOST).state == "cancelled"
        assert told.is_set()


def test_a_worker_that_lost_its_lease_learns_of_it_and_changes_nothing(
    server: Server, client: Mapae, working: Callable[..., Any]
) -> None:
    worker, reasons = Worker(server.url, server.key, lease=2.0), []
    learned, calls = threading.Event(), []

    @worker.job("taken")
    async def taken(params: Any, ctx: AsyncContext) -> Any:
        calls.append(1)
        if len(calls) == 1:
            # Somebody else with the token gives the job back: from now on it is anybody's.
            path = f"{server.url}/v1/leases/{ctx.lease.id}/release"
            async with httpx.AsyncClient() as http:
                (await http.post(path, headers={"mapae-token": ctx.lease.token or ""}, json={})).raise_for_status()
            reasons.append(await ctx.until_stopped())
            learned.set()
            return "the loser's"
        return "the winner's"

    with working(worker):
        job = client.wait(client.submit("taken").id, timeout=AT_MOST)
        assert learned.wait(AT_MOST)
        assert (client.result(job.id), reasons) == ("the winner's", ["lease-lost"])


def test_a_handler_that_hangs_has_failed_after_its_time_and_keeps_no_job(
    server: Server, client: Mapae, working: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mapae.worker.GRACE", 0.05)
    worker, free = Worker(server.url, server.key), threading.Event()

    @worker.job("quick", timeout=0.05)
    def hangs(params: Any) -> None:
        free.wait(AT_MOST)

    with working(worker):
        job = client.wait(client.submit("quick").id, timeout=AT_MOST)
        assert job.failure and (job.state, job.attempt, job.failure.code) == ("failed", 2, "timeout")
        free.set()


def test_a_key_without_the_right_ends_the_worker_with_the_reason(server: Server) -> None:
    worker = Worker(server.url, "wrong")
    worker.add("kept", lambda params: None)
    with pytest.raises(errors.NotPermitted):
        worker.run()


def test_heartbeats_go_on_where_the_process_that_sends_them_is_killed(
    server: Server, client: Mapae, working: Callable[..., Any]
) -> None:
    worker, go = Worker(server.url, server.key, lease=5.0), threading.Event()
    reasons, told = [], threading.Event()

    @worker.job("heartless")
    async def heartless(params: Any, ctx: AsyncContext) -> str:
        (heart,) = children(os.getpid()) - before
        os.kill(int(heart), signal.SIGKILL)
        # Only a heart that beats hears of the cancelling.
        go.set()
        reasons.append(await ctx.until_stopped())
        told.set()
        return "cancelled"

    before = children(os.getpid())
    with working(worker):
        job = client.submit("heartless")
        assert go.wait(AT_MOST)
        client.cancel(job.id)
        assert client.wait(job.id, timeout=AT_MOST).state == "cancelled"
        assert told.wait(AT_MOST)
        assert reasons == ["cancelled"]


PROGRAM = """
import os, sys, threading
from mapae import Worker
worker = Worker(lease=1.0, drain=float(sys.argv[1]))

@worker.job("outside")
def outside(params, ctx):
    print("begun", ctx.lease.attempt, flush=True)
    if params.get("until") == "draining":
        while not ctx.draining:
            threading.Event().wait(0.01)
        return "in order"
    while True:
        threading.Event().wait(60)

worker.run()
print("ended", flush=True)
"""


class Outside:
    """A worker in a process of its own."""

    def __init__(self, server: Server, drain: float) -> None:
        env = {**os.environ, "MAPAE_URL": server.url, "MAPAE_KEY": server.key}
        words = [sys.executable, "-c", PROGRAM, str(drain)]
        self.process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True)

    def reads(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        code = self.process.wait(AT_MOST)
        return code

    def __enter__(self) -> Outside:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def test_a_worker_that_is_killed_loses_its_job_to_another(
    server: Server, client: Mapae, working: Callable[..., Any]
) -> None:
    job = client.submit("outside", {})
    with Outside(server, drain=30) as outside:
        assert outside.reads() == "begun 1"
        (heart,) = children(outside.process.pid)
        heart_ends = os.pidfd_open(int(heart))
        outside.end(signal.SIGKILL)
    worker = Worker(server.url, server.key)
    worker.add("outside", lambda params: "done")
    with working(worker):
        ended = client.wait(job.id, timeout=AT_MOST)
    assert (ended.state, ended.attempt, client.result(job.id)) == ("succeeded", 2, "done")
    events = [event.name for event in client.events(job.id)]
    assert events.count("lost") == 1
    # Nothing of it is left behind.
    assert select.select([heart_ends], [], [], AT_MOST)[0]
    os.close(heart_ends)


def test_a_stop_signal_lets_work_end_and_hands_back_what_does_not(server: Server, client: Mapae) -> None:
    job = client.submit("outside", {"until": "draining"})
    with Outside(server, drain=30) as outside:
        assert outside.reads() == "begun 1"
        assert outside.end(signal.SIGTERM) == 0
        assert outside.reads() == "ended"
    ended = client.job(job.id)
    assert (ended.state, client.result(job.id)) == ("succeeded", "in order")

    job = client.submit("outside", {})
    with Outside(server, drain=0) as outside:
        assert outside.reads() == "begun 1"
        assert outside.end(signal.SIGTERM) == 0
    back = client.job(job.id)
    assert (back.state, back.attempt) == ("pending", 0)
    client.delete(job.id)


def children(pid: int) -> set[str]:
    threads = Path(f"/proc/{pid}/task").iterdir()
    return {child for thread in threads for child in (thread / "children").read_text().split()}
