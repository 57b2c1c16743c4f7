"""Heartbeats, sent by a process of their own.

A thread would not do: it cannot run while a C extension holds the interpreter's lock, and a worker that sends no
heartbeat loses its jobs. This process has nothing but a list of leases and a connection. It ends when the worker does,
however that ends, because the pipe between them closes; then the leases run out and the jobs are run again. A worker
that hangs does not keep a job for ever either: after the job's longest time nothing is sent for it any more.

    worker ── {"hold": id, "token", "lease", "most"} · {"drop": token} ──► heart
           ◄─ {"ready": ""} · {"lost": token} · {"cancel": token} ────────

Lines of JSON both ways; the first line to the heart is where the server is. Keys and tokens are on no command line.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

import httpx

from .protocol import Server

# Most heartbeats in one request: the server's own bound.
BATCH_MAX = 1000

# A heartbeat is sent so many times within the length of a lease.
BEATS = 4


@dataclass
class Held:
    """One lease. All times are of this process's monotonic clock."""

    job: str
    token: str
    lease: float
    most: float
    due: float
    # Until then nobody else can have the job.
    until: float
    cancelled: bool = False


class Heart:
    """The list, and what is told of it."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self._held: dict[str, Held] = {}
        self._changed = threading.Condition()
        self._ended = False

    def hear(self, line: str) -> None:
        """A word of the worker's."""
        said = json.loads(line)
        now = time.monotonic()
        with self._changed:
            if "drop" in said:
                self._held.pop(said["drop"], None)
            else:
                lease = float(said["lease"])
                first = now if said.get("at_once") else now + lease / BEATS
                held = Held(said["hold"], said["token"], lease, now + said["most"], first, now + lease)
                self._held[held.token] = held
            self._changed.notify()

    def end(self) -> None:
        """The worker is gone."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def run(self) -> None:
        """Sends what is due until the end."""
        while (due := self._due()) is not None:
            for start in range(0, len(due), BATCH_MAX):
                self._beat(due[start : start + BATCH_MAX])

    def _due(self) -> list[Held] | None:
        with self._changed:
            while not self._ended:
                now = time.monotonic()
                for held in [held for held in self._held.values() if now >= held.most]:
                    del self._held[held.token]
                due = [held for held in self._held.values() if now >= held.due]
                if due:
                    return due
                soonest = min((min(held.due, held.most) for held in self._held.values()), default=None)
                self._changed.wait(None if soonest is None else max(0.0, soonest - now))
            return None

    def _beat(self, due: list[Held]) -> None:
        items = [
            {"job": held.job, "token": held.token, "do": "heartbeat", "lease": f"{round(held.lease * 1000)}ms"}
            for held in due
        ]
        sent = time.monotonic()
        shortest = min(held.lease for held in due)
        try:
            answer = self._http.post("/v1/leases/batch", json={"items": items}, timeout=shortest / 2)
            told = answer.json()["items"] if answer.status_code == 200 else []
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            told = []
        # No answer is no loss, until it is too late to be anything else.
        unheard: dict[str, Any] = {"status": 0}
        for index, held in enumerate(due):
            self._heard(held, told[index] if index < len(told) else unheard, sent)

    def _heard(self, held: Held, answer: dict[str, Any], sent: float) -> None:
        now = time.monotonic()
        status = answer["status"]
        if status == 200:
            held.until = sent + held.lease
            held.due = sent + held.lease / BEATS
            if answer.get("cancel_requested") and not held.cancelled:
                held.cancelled = True
                say({"cancel": held.token})
            return
        # The margin is for the clocks, which do not run at quite the same speed.
        if status in (404, 409) or now >= held.until - held.lease / 10:
            with self._changed:
                known = self._held.pop(held.token, None)
            if known is not None:
                say({"lost": held.token})
            return
        held.due = now + min(1.0, held.lease / (2 * BEATS))


def say(word: dict[str, str]) -> None:
    """To the worker; where that is gone, its end is seen elsewhere."""
    try:
        print(json.dumps(word), flush=True)
    except OSError:
        pass


def main() -> None:
    """The process: its worker's signals are not its own, its worker's end is."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    where = sys.stdin.readline()
    if not where:
        return
    with httpx.Client(**Server(**json.loads(where)).options()) as http:
        heart = Heart(http)

        def listen() -> None:
            for line in sys.stdin:
                heart.hear(line)
            heart.end()

        threading.Thread(target=listen, daemon=True).start()
        say({"ready": ""})
        heart.run()
