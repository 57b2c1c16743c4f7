"""What mapae calls, in a FastAPI application that the real server calls."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import uvicorn
from conftest import AT_MOST
from fastapi import FastAPI
from starlette.routing import Route

from mapae import AsyncContext, Context, Mapae, Push, Retryable, RetryAfter, Secrets, Stale, Terminal
from mapae.testing import Server

OLD = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NEW = "C2FVsBQIhrscChlQIMV+b5sSYspob7oDC2FVsBQIhrs="

# Everything that the handlers saw, by what the test called it.
SEEN: dict[str, list[Any]] = {}
GATES: dict[str, threading.Event] = {}

push = Push(secrets=[NEW, OLD], slots=2, drain=0.0)


@push.handler("answered")
def answered(params: dict[str, Any], ctx: Context) -> Any:
    SEEN.setdefault(params["name"], []).append(ctx.lease)
    how = params.get("how")
    if how == "busy" and len(SEEN[params["name"]]) == 1:
        raise RetryAfter(1)
    if how == "stale":
        raise Stale("gone", "It is gone.")
    if how == "terminal":
        raise Terminal("too-odd", "Too odd.")
    if how == "raise":
        raise ValueError(params["name"])
    return {"owner": ctx.lease.owner}


@push.handler("later", later=True)
async def later(params: dict[str, Any], ctx: AsyncContext) -> Any:
    SEEN.setdefault(params["name"], []).append(ctx.lease)
    await ctx.progress(1, 2, "thinking")
    if params.get("how") == "terminal":
        raise Terminal("too-odd", "Too odd.")
    if params.get("how") == "retry" and ctx.lease.attempt == 1:
        raise Retryable("not-yet", "Not yet.")
    if params.get("how") == "wait":
        await asyncio.to_thread(GATES[params["name"]].wait, AT_MOST)
    return {"attempt": ctx.lease.attempt}


def config(address: str) -> str:
    kinds = {"answered": "", "later": "accepted = [202]\n", "raw": 'accepted = [202]\nbody = "raw"\n'}
    places = {"answered": "/mapae/answered", "later": "/mapae/later", "raw": "/internal/v1/context/process"}
    return "".join(
        f'[handler."{kind}"]\nurl = "{address}{places[kind]}"\nsecret = "{OLD}"\n'
        f'retry = {{ attempts = 2, backoff = "10ms..10ms" }}\n{more}'
        for kind, more in kinds.items()
    )


class Application:
    """An application that is served until `stop`."""

    def __init__(self, app: Any, address: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self._socket = socket.create_server(address)
        self.address = "http://{}:{}".format(*self._socket.getsockname())
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none"))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]})
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(AT_MOST)
        assert not self._thread.is_alive()
        self._socket.close()


def application() -> FastAPI:
    app = FastAPI(lifespan=push.lifespan)
    app.mount("/mapae", push)
    app.router.routes.append(Route("/internal/v1/context/process", push.at("later")))
    return app


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    served = Application(application())
    yield served.address
    served.stop()


@pytest.fixture(scope="module")
def calling(address: str) -> Iterator[Server]:
    with Server(config=config(address)) as server:
        yield server


@pytest.fixture
def client(calling: Server) -> Mapae:
    return calling.client


@pytest.fixture
def name() -> str:
    return str(uuid.uuid4())


def test_an_answer_is_the_jobs_end(client: Mapae, name: str) -> None:
    job = client.submit("answered", {"name": name}, owner="acme", wait=30)
    assert (job.state, client.result(job.id)) == ("succeeded", {"owner": "acme"})
    (lease,) = SEEN[name]
    assert (lease.id, lease.attempt, lease.kind) == (job.id, 1, "answered")
    assert lease.idempotency_key.startswith(job.id) and lease.token


@pytest.mark.parametrize(
    "how, end",
    [
        ("busy", ("succeeded", 1, None)),
        ("stale", ("stale", 1, "service-gone")),
        ("terminal", ("failed", 1, "service-refused")),
        ("raise", ("failed", 2, "service-failed")),
    ],
)
def test_an_answered_failure_means_what_it_says(client: Mapae, name: str, how: str, end: tuple[Any, ...]) -> None:
    job = client.wait(client.submit("answered", {"name": name, "how": how}).id, timeout=AT_MOST)
    assert (job.state, job.attempt, job.failure and job.failure.code) == end
    assert name not in json.dumps(job.raw)


def test_work_for_later_tells_its_end_itself(client: Mapae, name: str) -> None:
    job = client.submit("later", {"name": name}, wait=30)
    assert (job.state, client.result(job.id)) == ("succeeded", {"attempt": 1})
    assert "handed-over" in [event.name for event in client.events(job.id)]
    job = client.submit("later", {"name": name, "how": "terminal"}, wait=30)
    assert job.failure and (job.state, job.failure.code) == ("failed", "too-odd")
    job = client.submit("later", {"name": name, "how": "retry"}, wait=30)
    assert client.result(job.id) == {"attempt": 2}


def test_a_service_that_was_there_keeps_its_address_and_its_body(client: Mapae, name: str) -> None:
    job = client.submit("raw", {"name": name}, wait=30)
    assert (job.state, SEEN[name][0].params) == ("succeeded", {"name": name})


def test_more_than_there_are_places_for_comes_again_and_uses_no_attempt(client: Mapae) -> None:
    names = [str(uuid.uuid4()) for _ in range(3)]
    GATES.update({name: threading.Event() for name in names})
    jobs = [client.submit("later", {"name": name, "how": "wait"}) for name in names]
    refused = next(
        event
        for event in client.events(after="0-0")
        if event.name == "throttled" and event.job in [job.id for job in jobs]
    )
    for gate in GATES.values():
        gate.set()
    ended = [client.wait(job.id, timeout=AT_MOST) for job in jobs]
    assert [(job.state, job.attempt) for job in ended] == [("succeeded", 1)] * 3
    assert refused.job in [job.id for job in jobs]
    assert sorted(len(SEEN[name]) for name in names) == [1, 1, 1]


@pytest.mark.parametrize("spoiled", ["signature", "body", "time", "none", "secret"])
def test_a_call_that_was_not_signed_lately_is_refused_and_starts_nothing(address: str, name: str, spoiled: str) -> None:
    body = json.dumps({"name": name}).encode()
    secrets = Secrets("whsec_" + "A" * 32) if spoiled == "secret" else Secrets(OLD)
    headers = secrets.sign("call-1", body, at=time.time() - (301 if spoiled == "time" else 0))
    headers |= {"mapae-job": name, "mapae-attempt": "1", "idempotency-key": "k"}
    if spoiled == "signature":
        headers["webhook-signature"] = "v1," + "A" * 43 + "="
    if spoiled == "none":
        del headers["webhook-signature"]
    sent = body + b" " if spoiled == "body" else body
    answer = httpx.post(f"{address}/mapae/answered", content=sent, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "signature-invalid")
    assert name not in SEEN


def test_either_secret_proves_a_call_while_they_are_rotated(address: str, name: str) -> None:
    body = json.dumps({"name": name}).encode()
    for secret in (OLD, NEW):
        headers = Secrets(secret).sign("call-1", body)
        headers |= {"mapae-job": name, "mapae-attempt": "1", "idempotency-key": "k"}
        assert httpx.post(f"{address}/mapae/answered", content=body, headers=headers).status_code == 200
    assert len(SEEN[name]) == 2


@pytest.mark.parametrize(
    "method, path, headers, status",
    [
        ("GET", "/mapae/later", {}, 405),
        ("POST", "/mapae/unknown", {}, 404),
        ("POST", "/mapae/later", {"mapae-attempt": "first"}, 400),
        ("POST", "/mapae/later", {}, 422),
        ("POST", "/mapae/later", {"mapae-callback": "http://127.0.0.1:1/elsewhere?token=t"}, 400),
        ("POST", "/mapae/later", {"mapae-callback": "file:///v1/leases/" + "0" * 36 + "/complete?token=t"}, 400),
    ],
)
def test_what_is_no_call_is_refused(address: str, method: str, path: str, headers: dict[str, str], status: int) -> None:
    signed = Secrets(OLD).sign("call-1", b"{}") | {"mapae-job": "j", "mapae-attempt": "1", "idempotency-key": "k"}
    answer = httpx.request(method, address + path, content=b"{}", headers={**signed, **headers})
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


def test_a_call_that_comes_again_while_its_work_goes_on_starts_no_second_and_its_newest_right_is_used() -> None:
    told: list[tuple[str, str | None]] = []
    begun, gate, ran = threading.Event(), threading.Event(), []

    async def mapae(scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        told.append((scope["path"], headers.get("mapae-token")))
        # The first right is worth nothing any more.
        status = 409 if headers["mapae-token"] == "first" else 200
        body = b'{"code": "lease-lost"}' if status == 409 else b'{"state": "succeeded", "cancel_requested": false}'
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": body})

    api = Application(wrap(mapae))
    again = Push(unsigned=True, api=api.address)

    @again.handler("later", later=True)
    def work(params: Any) -> str:
        ran.append(1)
        begun.set()
        gate.wait(AT_MOST)
        return "done"

    service = Application(again)
    job = "0" * 36

    def call(token: str) -> int:
        # Another's address: ends are told at `api` and nowhere else.
        callback = f"http://192.0.2.1/v1/leases/{job}/complete?token={token}"
        headers = {"mapae-job": job, "mapae-attempt": "1", "idempotency-key": "k", "mapae-callback": callback}
        return httpx.post(f"{service.address}/later", content=b"{}", headers=headers).status_code

    try:
        assert call("first") == 202 and begun.wait(AT_MOST)
        assert call("second") == 202
    finally:
        gate.set()
        service.stop()
        api.stop()
    assert ran == [1]
    assert told == [(f"/v1/leases/{job}/complete", "second")]


def test_a_call_that_comes_while_a_failure_is_told_is_another_attempt() -> None:
    told, attempts, done = [], [], threading.Event()

    async def mapae(scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        told.append((scope["path"].rpartition("/")[2], headers["mapae-token"]))
        if headers["mapae-token"] == "first":
            # It is kept, and the next attempt is quicker than the answer.
            assert await asyncio.to_thread(call, 2, "second") == 202
        else:
            done.set()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b'{"state": "pending", "cancel_requested": false}'})

    api = Application(wrap(mapae))
    retried = Push(unsigned=True, api=api.address)

    @retried.handler("later", later=True)
    def work(params: Any, ctx: Context) -> str:
        attempts.append(ctx.lease.attempt)
        if ctx.lease.attempt == 1:
            raise Retryable("not-yet", "Not yet.")
        return "done"

    service = Application(retried)

    def call(attempt: int, token: str) -> int:
        callback = f"{api.address}/v1/leases/{'0' * 36}/complete?token={token}"
        headers = {"mapae-job": "0" * 36, "mapae-attempt": str(attempt), "idempotency-key": "k"}
        headers["mapae-callback"] = callback
        return httpx.post(f"{service.address}/later", content=b"{}", headers=headers).status_code

    try:
        assert call(1, "first") == 202
        assert done.wait(AT_MOST)
    finally:
        service.stop()
        api.stop()
    assert attempts == [1, 2]
    assert told == [("fail", "first"), ("complete", "second")]


def test_an_application_that_ends_hands_its_work_back_and_another_does_it(name: str) -> None:
    ended: list[Callable[[], None]] = []
    first = Push(unsigned=True, drain=0.0)
    begun = threading.Event()

    @first.handler("later", later=True)
    async def never(params: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    service = Application(first)
    ended.append(service.stop)
    with Server(config=config(service.address).replace("/mapae/", "/")) as server:
        try:
            job = server.client.submit("later", {"name": name})
            assert begun.wait(AT_MOST)
            host, port = service.address.removeprefix("http://").split(":")
            ended.pop()()
            second = Push(unsigned=True)
            second.handler("later", later=True)(lambda params: "done")
            ended.append(Application(second, (host, int(port))).stop)
            done = server.client.wait(job.id, timeout=AT_MOST)
            assert (done.state, server.client.result(job.id)) == ("succeeded", "done")
            events = [event.name for event in server.client.events(job.id)]
            assert "released" in events and "lost" not in events
        finally:
            for end in ended:
                end()


def test_secrets_or_a_word_that_there_are_none() -> None:
    for wrong in ({}, {"secrets": [OLD], "unsigned": True}, {"secrets": ["short"]}, {"secrets": []}):
        with pytest.raises(ValueError):
            Push(**wrong)  # type: ignore[arg-type]


def wrap(app: Any) -> Any:
    """Only its requests."""

    async def wrapped(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await app(scope, receive, send)

    return wrapped
