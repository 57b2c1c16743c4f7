"""The whole example on a bad day: PostgreSQL, the real mapae, the backend, and an AI service that fails in every way.

No record stays PENDING, none lands twice, and what became of a record is what became of its job.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy
import uvicorn
from sqlalchemy.engine import make_url

from mapae.testing import Server

HERE = Path(__file__).parent
SECRET = "whsec_c2VjcmV0LW9mLXRoZS1leGFtcGxlLW9ubHkhIQ=="
AT_MOST = 60.0

# The example's own configuration, in a hurry.
HURRY = {
    '"5m"': '"2s"',
    "attempts = 5": "attempts = 3",
    '"10s..10m"': '"50ms..200ms"',
}

ENDS = {
    "fine": ("DONE", "succeeded"),
    "slow": ("DONE", "succeeded"),
    "429": ("DONE", "succeeded"),
    "500": ("DONE", "succeeded"),
    "500 always": ("FAILED", "failed"),
    "garbage": ("FAILED", "failed"),
    "silence": ("DONE", "succeeded"),
    "killed": ("DONE", "succeeded"),
    "twice": ("DONE", "succeeded"),
    "backend died": ("DONE", "succeeded"),
}


@pytest.fixture
def database() -> Iterator[str]:
    given = os.environ.get("MAPAE_TEST_POSTGRES")
    if not given:
        pytest.skip("MAPAE_TEST_POSTGRES names no PostgreSQL")
    url = make_url(given).set(drivername="postgresql+psycopg")
    server = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    name = f"records_{uuid.uuid4().hex}"
    with server.connect() as connection:
        connection.execute(sqlalchemy.text(f"create database {name}"))
    yield url.set(database=name).render_as_string(hide_password=False)
    with server.connect() as connection:
        connection.execute(sqlalchemy.text(f"drop database {name} with (force)"))
    server.dispose()


class Service:
    """The AI service in a process of its own. Its address outlives it: who calls meanwhile waits, as behind a proxy."""

    def __init__(self, seen: Path) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._env = {**os.environ, "FAULTY_SEEN": str(seen), "AI_SECRET": SECRET}
        self.start()

    def start(self) -> None:
        place = str(self._listening.fileno())
        self._process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "faulty_ai:app", "--fd", place, "--log-level", "warning"],
            cwd=HERE,
            env=self._env,
            pass_fds=[self._listening.fileno()],
            stdout=subprocess.PIPE,
            text=True,
        )

    def says(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def close(self) -> None:
        self.kill()
        self._listening.close()


def test_no_record_stays_pending_and_none_lands_twice(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(tmp_path)
    config = (HERE / "mapae.toml").read_text().replace("127.0.0.1:8001", f"127.0.0.1:{service.port}")
    for slow, quick in HURRY.items():
        assert slow in config
        config = config.replace(slow, quick)
    try:
        with Server(config=config) as mapae:
            monkeypatch.setenv("MAPAE_URL", mapae.url)
            monkeypatch.setenv("MAPAE_KEY", mapae.key)
            monkeypatch.setenv("RECORDS_DATABASE", database)
            monkeypatch.setenv("RECORDS_OVERDUE", "1")
            monkeypatch.syspath_prepend(str(HERE))
            check(mapae, service)
    finally:
        service.close()


def check(mapae: Server, service: Service) -> None:
    import backend
    import processing
    import records

    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(backend.app, log_level="warning", ws="none"))
    serving = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    serving.start()
    try:
        with httpx.Client(base_url="http://{}:{}".format(*listening.getsockname()), timeout=AT_MOST) as web:
            assert web.get("/records").json() == []
            # A backend that died after its commit and before it had told anybody.
            with records.Session.begin() as session:
                session.add(records.Record(title="backend died", text="Queues and records"))
            for title in ENDS:
                if title not in ("backend died", "killed"):
                    save(web, title)
            ended(web)
            save(web, "killed")
            assert service.says() == "killed: accepted\n"
            service.kill()
            service.start()
            # Everything is told once more.
            for row in ended(web):
                processing.land(row["job"], "failed", "told-again")
            rows = ended(web)
            shown = web.get("/").text
    finally:
        server.should_exit = True
        serving.join(AT_MOST)
        listening.close()
    jobs = {row["title"]: mapae.client.job(row["job"]).state for row in rows}
    assert {row["title"]: (row["state"], jobs[row["title"]]) for row in rows} == ENDS
    assert {row["landed"] for row in rows} == {1}
    for row in rows:
        assert (row["keywords"] is None) == (row["embedding"] is None) == (row["state"] == "FAILED")
        assert row["title"] in shown
    # One job a record, however often it was asked for.
    assert len(list(mapae.client.jobs(kind="context.process"))) == len(ENDS)


def save(web: httpx.Client, title: str) -> None:
    saved = web.post("/records", json={"title": title, "text": "Queues and records"})
    assert (saved.status_code, saved.json()["state"]) == (201, "PENDING")


def ended(web: httpx.Client) -> list[dict[str, Any]]:
    """The records once none is PENDING. Looks again and again, as the page does; what never ends fails the test."""
    until = time.monotonic() + AT_MOST
    while True:
        rows: list[dict[str, Any]] = web.get("/records").json()
        pending = [row["title"] for row in rows if row["state"] == "PENDING"]
        if not pending:
            return rows
        assert time.monotonic() < until, pending
        time.sleep(0.05)
