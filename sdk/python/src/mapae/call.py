"""One call of mapae's: what it says, and how it is answered. ASGI on one side, values on the other."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from .model import Lease, parse_time

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# The largest body that is read, in bytes: params are at most 256 KiB.
BODY_MAX = 1 << 20

_LEASE = re.compile(r"(/v1/leases/[0-9a-f-]{36})/complete$")


class Refused(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, code: str, title: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(code)
        self.status, self.code, self.title = status, code, title
        self.headers = dict(headers or {})


@dataclass
class Callback:
    """Where the end of the work is told, with the token that makes it a right."""

    lease: str
    token: str


def read_callback(headers: Mapping[str, str], api: str | None) -> Callback | None:
    """Where the call says that its end is told; at `api`, where that is given, whatever it says."""
    given = headers.get("mapae-callback")
    if given is None:
        return None
    parts = urlsplit(given)
    token = parse_qs(parts.query).get("token", [""])[0]
    found = _LEASE.search(parts.path)
    if not token or found is None or parts.scheme not in ("http", "https"):
        raise Refused(400, "callback-invalid", "The header Mapae-Callback is none of mapae's.")
    base = api or f"{parts.scheme}://{parts.netloc}{parts.path[: found.start()]}"
    return Callback(f"{base}{found[1]}", token)


def read_lease(kind: str, headers: Mapping[str, str], body: bytes, callback: Callback | None) -> Lease:
    """What the call says of its job: with `body = "raw"` the body is the params alone."""
    try:
        said = json.loads(body)
        job, attempt = headers["mapae-job"], int(headers["mapae-attempt"])
        key = headers["idempotency-key"]
        deadline = parse_time(headers["mapae-deadline"]) if "mapae-deadline" in headers else None
    except (ValueError, KeyError) as error:
        raise Refused(400, "call-invalid", "This is no call of mapae's.") from error
    params, owner = said, None
    if isinstance(said, dict) and set(said) == {"job", "params"} and isinstance(said["job"], dict):
        if said["job"].get("id") == job:
            params, owner = said["params"], said["job"].get("owner")
    return Lease(
        id=job,
        kind=kind,
        params=params,
        attempt=attempt,
        idempotency_key=key,
        token=callback.token if callback else None,
        owner=owner,
        deadline=deadline,
        traceparent=headers.get("traceparent"),
    )


async def read_body(receive: Receive) -> bytes:
    """All of it, up to the bound."""
    body: bytes = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Refused(400, "call-invalid", "The call was cut.")
        body += message.get("body", b"")
        if len(body) > BODY_MAX:
            raise Refused(413, "body-too-large", f"At most {BODY_MAX} bytes are read.")
        if not message.get("more_body", False):
            return body


async def answer(send: Send, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
    """Sends a whole answer."""
    sent = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
    start = {"type": "http.response.start", "status": status}
    await send({**start, "headers": [(name.encode(), value.encode("latin-1")) for name, value in sent.items()]})
    await send({"type": "http.response.body", "body": body})
