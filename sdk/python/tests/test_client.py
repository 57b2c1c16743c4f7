from __future__ import annotations

import asyncio
import hashlib
import inspect
import socket
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from conftest import AT_MOST

from mapae import AsyncMapae, JobFailed, Mapae, Terminal, Unreachable, WaitTimeout, Worker, errors
from mapae.testing import Server


def test_the_same_submission_twice_is_one_job(client: Mapae) -> None:
    key = str(uuid.uuid4())
    first = client.submit("kept", {"n": 1}, key=key)
    assert client.submit("kept", {"n": 1}, key=key).id == first.id
    with pytest.raises(errors.KeyReused) as refused:
        client.submit("kept", {"n": 2}, key=key)
    assert refused.value.code == "idempotency-key-reused" and refused.value.help


def test_a_submission_whose_answer_was_lost_is_sent_again_and_is_one_job(server: Server) -> None:
    with cut_once(server) as url, Mapae(url, server.key) as client:
        job = client.submit("answer-lost", {"n": 1})
        assert [job.id] == [found.id for found in client.jobs(kind="answer-lost")]


def test_what_was_asked_for_is_what_the_job_has(client: Mapae) -> None:
    at = datetime.now(timezone.utc) + timedelta(hours=1)
    job = client.submit("later", {"n": 1}, run_at=at, priority=2)
    assert (job.kind, job.state, job.phase, job.priority) == ("later", "pending", "scheduled", 2)
    assert abs(job.due_at - at) < timedelta(milliseconds=2)
    assert client.cancel(job.id).state == "cancelled"
    with pytest.raises(ValueError):
        client.submit("later", run_at=datetime.now())


def test_a_file_is_handed_over_whole(client: Mapae, tmp_path: Path) -> None:
    content = bytes(range(256)) * 4096
    (tmp_path / "file").write_bytes(content)
    with open(tmp_path / "file", "rb") as file:
        jobs = [client.upload(given, name="a b.bin", kind="filed", params={"n": 1}) for given in (content, file)]
    for job in jobs:
        assert job.source and (job.source.name, job.source.bytes) == ("a b.bin", len(content))
        assert job.source.sha256 == hashlib.sha256(content).hexdigest()


def test_refusals_are_errors_of_their_own(server: Server, client: Mapae) -> None:
    job = client.submit("kept")
    nobody, stranger = str(uuid.uuid4()), Mapae(server.url, "wrong")
    for error, code, call in [
        (errors.NotFound, "job-not-found", lambda: client.job(nobody)),
        (errors.NotFinished, "job-not-finished", lambda: client.result(job.id)),
        (errors.Conflict, "job-state-conflict", lambda: client.retry(job.id)),
        (errors.Invalid, "body-invalid", lambda: client.submit("not a kind")),
        (errors.NotPermitted, "unauthenticated", lambda: stranger.job(job.id)),
    ]:
        with pytest.raises(error) as refused:
            call()
        assert (type(refused.value), refused.value.code) == (error, code)
    stranger.close()
    with pytest.raises(WaitTimeout):
        client.wait(job.id, timeout=0.05)
    client.delete(job.id)
    with pytest.raises(errors.NotFound):
        client.job(job.id)


def test_nobody_there_is_an_error_without_what_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mapae.protocol.PAUSES", (0.0,))
    monkeypatch.setattr("mapae.client.PAUSES", (0.0,))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with Mapae(url, "key") as client, pytest.raises(Unreachable) as raised:
            client.submit("kept", {"secret": "content"})
    assert "content" not in str(raised.value)


def test_the_end_is_told_when_it_comes_and_the_result_is_there(
    server: Server, client: Mapae, working: Callable[..., Any]
) -> None:
    worker = Worker(server.url, server.key)
    worker.add("square", lambda params: params["n"] ** 2)

    @worker.job("refuses")
    def refuses(params: Any) -> None:
        raise Terminal("too-odd", "The number is odd.")

    waited: list[Any] = []
    job, bad = client.submit("square", {"n": 7}), client.submit("refuses")
    waiting = threading.Thread(target=lambda: waited.append(client.wait(job.id, timeout=AT_MOST)))
    waiting.start()
    with working(worker):
        waiting.join(AT_MOST)
        assert waited[0].raise_unless_succeeded().id == job.id
        assert client.result(job.id) == 49
        with pytest.raises(JobFailed) as failed:
            client.wait(bad.id, timeout=AT_MOST).raise_unless_succeeded()
        assert failed.value.job.failure and failed.value.job.failure.code == "too-odd"
        with pytest.raises(errors.NotSucceeded):
            client.result(bad.id)


def test_events_go_on_after_a_restart_of_the_server_without_a_gap() -> None:
    with Server() as server:
        client = server.client
        job = client.submit("followed", {"n": 1})
        begun, told = threading.Event(), []

        def follow() -> None:
            for event in client.events(job.id):
                told.append(event)
                begun.set()

        following = threading.Thread(target=follow)
        following.start()
        assert begun.wait(AT_MOST)
        server.kill()
        server.start()
        client.cancel(job.id)
        following.join(AT_MOST)
        assert not following.is_alive()
        kept = [event for event in told if event.position is not None]
        assert [event.sequence for event in kept] == list(range(1, len(kept) + 1))
        assert [kept[0].name, kept[-1].name] == ["accepted", "cancelled"]
        # All told: asked from there, nothing comes, and it ends.
        assert list(client.events(job.id, after=kept[-1].position)) == []
        again = client.events(job.id, after=kept[0].position)
        assert [event.sequence for event in again if event.position] == [event.sequence for event in kept[1:]]


def test_the_async_client_does_the_same(server: Server, working: Callable[..., Any]) -> None:
    worker = Worker(server.url, server.key)
    worker.add("async-square", lambda params: params["n"] ** 2)

    async def use() -> None:
        async with AsyncMapae(server.url, server.key) as client:
            jobs = await asyncio.gather(*(client.submit("async-square", {"n": n}) for n in range(5)))
            ended = await asyncio.gather(*(client.wait(job.id, timeout=AT_MOST) for job in jobs))
            assert {job.state for job in ended} == {"succeeded"}
            assert [await client.result(job.id) for job in jobs] == [0, 1, 4, 9, 16]
            assert {job.id async for job in client.jobs(kind="async-square")} == {job.id for job in jobs}
            names = [event.name async for event in client.events(jobs[0].id) if event.position]
            assert names[0] == "accepted" and names[-1] == "succeeded"
            with pytest.raises(errors.NotFound):
                await client.job(str(uuid.uuid4()))

    with working(worker):
        asyncio.run(use())


def test_both_clients_have_the_same_calls() -> None:
    def calls(client: type) -> dict[str, list[str]]:
        functions = inspect.getmembers(client, inspect.isfunction)
        return {name: list(inspect.signature(f).parameters) for name, f in functions if not name.startswith("_")}

    sync, asynchronous = calls(Mapae), calls(AsyncMapae)
    sync["aclose"] = sync.pop("close")
    assert sync == asynchronous


class cut_once:
    """A line to the server on which the first answer is lost: it was made, and is never passed on."""

    def __init__(self, server: Server) -> None:
        host, port = server.url.removeprefix("http://").split(":")
        self._to = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []

    def __enter__(self) -> str:
        threading.Thread(target=self._serve, daemon=True).start()
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        for end in (self._listener, *self._open):
            end.close()

    def _serve(self) -> None:
        cut = True
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(self._to)
            threading.Thread(target=self._carry, args=(near, far), daemon=True).start()
            self._open += [near, far]
            if cut:
                cut = False
                far.recv(1)
                with suppress(OSError):
                    near.shutdown(socket.SHUT_RDWR)
            else:
                threading.Thread(target=self._carry, args=(far, near), daemon=True).start()

    @staticmethod
    def _carry(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
