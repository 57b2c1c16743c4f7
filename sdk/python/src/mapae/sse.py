"""Server-sent events (WHATWG HTML, section 9.2) from bytes, as far as mapae sends them: lines end with a line feed."""

from __future__ import annotations

import json
from collections.abc import Iterator

from .errors import Unreachable
from .model import Event

# An event holds no content, so a longer one is none of mapae's.
MESSAGE_BYTES_MAX = 1 << 20


class Parser:
    """Takes bytes as they come and gives each event once it is whole."""

    def __init__(self) -> None:
        self._rest = b""
        self._lines: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that these bytes complete."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > MESSAGE_BYTES_MAX or len(self._lines) > 1000:
            raise Unreachable("The stream of events holds a message that is too long.")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line:
                self._lines.append(line)
                continue
            event = _event(self._lines)
            self._lines = []
            if event is not None:
                yield event


def _event(lines: list[bytes]) -> Event | None:
    fields: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.decode("utf-8", "replace").partition(":")
        fields.setdefault(name, []).append(value.removeprefix(" "))
    if "data" not in fields:  # a comment that keeps the connection alive
        return None
    try:
        told = json.loads("\n".join(fields["data"]))
        # What is kept is a CloudEvent, what is not is only its data.
        data = told.get("data", told)
        job = data["job"]
    except (ValueError, KeyError, AttributeError) as error:
        raise Unreachable("The stream of events holds something else.") from error
    name = fields.get("event", ["message"])[-1]
    position = fields.get("id", [None])[-1]
    return Event(name=name, job=job, position=position, sequence=told.get("sequence"), data=data)
