"""The backend's own table. A record's state is PENDING until its keywords and its embedding are there."""

from __future__ import annotations

import os
import uuid
from datetime import datetime

from sqlalchemy import JSON, Float, Text, create_engine, func
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker


class Base(DeclarativeBase):
    pass


class Record(Base):
    __tablename__ = "records"

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=uuid.uuid4)
    title: Mapped[str] = mapped_column(Text)
    text: Mapped[str] = mapped_column(Text)
    # PENDING, DONE, FAILED
    state: Mapped[str] = mapped_column(Text, default="PENDING", index=True)
    keywords: Mapped[list[str] | None] = mapped_column(JSON)
    embedding: Mapped[list[float] | None] = mapped_column(ARRAY(Float))
    # Why it FAILED: a code, never content.
    failure: Mapped[str | None] = mapped_column(Text)
    job: Mapped[uuid.UUID | None] = mapped_column(index=True)
    # How often an end has landed here. It is one, whatever is killed and sent twice.
    landed: Mapped[int] = mapped_column(default=0)
    saved_at: Mapped[datetime] = mapped_column(server_default=func.now())


class Position(Base):
    """Up to where the events of mapae have been read; moved in the transaction that used them."""

    __tablename__ = "positions"

    reader: Mapped[str] = mapped_column(Text, primary_key=True)
    after: Mapped[str] = mapped_column(Text)


# Errors do not quote what a statement was given: they are logged.
engine = create_engine(
    os.environ.get("RECORDS_DATABASE", "postgresql+psycopg://localhost/records"), hide_parameters=True
)
Session = sessionmaker(engine, expire_on_commit=False)
