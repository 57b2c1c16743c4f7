"""Between the records and mapae. One rule: `ask` as often as you like, `land` changes a PENDING record once.

POST /records ─► commit PENDING ─► ask ──► mapae ──► the AI service: 202 … done
                                    ▲                         │
                 sweep ─────────────┘      follow ◄── events ─┘
                 (PENDING for too long)       └─► land: DONE or FAILED
"""

from __future__ import annotations

import logging
import os
import threading
import uuid

from sqlalchemy import func, select, update
from sqlalchemy.exc import SQLAlchemyError

from mapae import Mapae, MapaeError
from mapae.errors import Expired, NotFound
from records import Position, Record, Session

log = logging.getLogger("records")

KIND = "context.process"
# Seconds after which a record that is still PENDING is asked about, and how often it is looked for such.
OVERDUE = float(os.environ.get("RECORDS_OVERDUE", "60"))
SWEEP = OVERDUE / 4
# Records that one sweep looks at.
SWEEP_MAX = 200

mapae = Mapae()


def ask(record: Record) -> None:
    """The one place where work is handed over. To be called after the commit, and again at any time: the key makes it the
    same job. Where this never ran, or nobody answered, the sweep runs it: the PENDING row is the reminder."""
    params = {"recordId": str(record.id), "title": record.title, "text": record.text}
    try:
        job = mapae.submit(KIND, params, key=f"{KIND}/{record.id}")
    except MapaeError as error:
        log.warning("a record could not be handed over, the sweep will record=%s: %s", record.id, error)
        return
    with Session.begin() as session:
        session.execute(update(Record).where(Record.id == record.id).values(job=uuid.UUID(job.id)))
    if job.ended:
        land(job.id, job.state, job.failure.code if job.failure else None)


def land(job: str, state: str, code: str | None, position: str | None = None) -> None:
    """What became of a job becomes what became of its record, once: the guard is in the statement."""
    mine = (Record.job == uuid.UUID(job)) & (Record.state == "PENDING")
    with Session() as session:
        waits = session.scalar(select(Record.id).where(mine)) is not None
    values = outcome(job, state, code) if waits else {}
    with Session.begin() as session:
        if values:
            session.execute(update(Record).where(mine).values(landed=Record.landed + 1, **values))
        if position is not None:
            session.merge(Position(reader=KIND, after=position))


def outcome(job: str, state: str, code: str | None) -> dict[str, object]:
    if state != "succeeded":
        return {"state": "FAILED", "failure": code or state}
    try:
        result = mapae.result(job)
    except (NotFound, Expired):
        return {"state": "FAILED", "failure": "result-gone"}
    return {"state": "DONE", "keywords": result["keywords"], "embedding": result["embedding"]}


def follow() -> None:
    """Ends as mapae tells them, from where the last process stopped reading."""
    with Session() as session:
        kept = session.get(Position, KIND)
    for event in mapae.events(after=kept.after if kept else "0-0"):
        if event.ended and event.data["kind"] == KIND:
            land(event.job, event.name, event.data["code"], event.position)


def sweep() -> None:
    """The net under all of it: a backend that died after its commit, an event that came before `ask` had noted its job."""
    overdue = func.now() - func.make_interval(0, 0, 0, 0, 0, 0, OVERDUE)
    waiting = select(Record).where(Record.state == "PENDING", Record.saved_at < overdue).limit(SWEEP_MAX)
    with Session() as session:
        records = session.scalars(waiting).all()
    for record in records:
        ask(record)


def run(stop: threading.Event) -> list[threading.Thread]:
    """Both, until `stop`. What fails is tried again."""

    def keep(work: object, pause: float) -> None:
        while not stop.is_set():
            try:
                work()  # type: ignore[operator]
            except (MapaeError, SQLAlchemyError) as error:
                log.warning("%s is tried again: %s", work.__name__, type(error).__name__)  # type: ignore[attr-defined]
            stop.wait(pause)

    threads = [threading.Thread(target=keep, args=pair, daemon=True) for pair in ((follow, 1.0), (sweep, SWEEP))]
    for thread in threads:
        thread.start()
    return threads
