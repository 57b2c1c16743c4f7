"""The backend: saves records, shows them. `uvicorn backend:app`"""

from __future__ import annotations

import html
import threading
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import BackgroundTasks, FastAPI, HTTPException
from fastapi.responses import HTMLResponse
from pydantic import BaseModel
from sqlalchemy import select

import processing
from records import Base, Record, Session, engine


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    Base.metadata.create_all(engine)
    stop = threading.Event()
    processing.run(stop)
    yield
    stop.set()


app = FastAPI(lifespan=lifespan)


class NewRecord(BaseModel):
    title: str
    text: str


def shown(record: Record) -> dict[str, Any]:
    columns = ("title", "state", "keywords", "embedding", "failure", "landed")
    return {
        "id": str(record.id),
        "job": record.job and str(record.job),
        **{name: getattr(record, name) for name in columns},
    }


@app.post("/records", status_code=201)
def save(new: NewRecord, after_the_answer: BackgroundTasks) -> dict[str, Any]:
    record = Record(title=new.title, text=new.text)
    with Session.begin() as session:
        session.add(record)
    # Saved. Nobody waits for the AI, nor for mapae.
    after_the_answer.add_task(processing.ask, record)
    return shown(record)


@app.get("/records")
def records() -> list[dict[str, Any]]:
    with Session() as session:
        return [shown(record) for record in session.scalars(select(Record).order_by(Record.saved_at))]


@app.get("/records/{id}")
def one(id: uuid.UUID) -> dict[str, Any]:
    with Session() as session:
        record = session.get(Record, id)
    if record is None:
        raise HTTPException(404)
    return shown(record)


@app.get("/", response_class=HTMLResponse)
def page() -> str:
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in (row["title"], row["state"]))
        + f"<td>{html.escape(', '.join(row['keywords'] or []) or row['failure'] or '…')}</td></tr>"
        for row in reversed(records())
    )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=2><title>Records</title>"
        "<style>body{font:16px system-ui;margin:2rem}td,th{padding:.3rem 1rem;text-align:left}</style>"
        f"<h1>Records</h1><table><tr><th>Title<th>State<th>Keywords</tr>{rows}</table></html>"
    )
