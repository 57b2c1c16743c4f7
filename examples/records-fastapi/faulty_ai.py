"""The AI service on a bad day, for the test: what goes wrong with a record stands in its title.

`429`, `500` and `silence` go wrong the first time, `killed` too: the work begins, and the process is then killed. `500 always`
and `garbage` always. `twice` tells its end twice.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import httpx

import ai

# Outlives the process, as a real service's database would.
SEEN = Path(os.environ["FAULTY_SEEN"])


def first(title: str) -> bool:
    """Whether this is the first call of the record."""
    try:
        (SEEN / title.replace(" ", "-")).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


async def answer(send: Any, status: int, body: bytes = b"", headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        await ai.app(scope, receive, send)
        return
    message = await receive()
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    title = json.loads(message["body"])["params"]["title"]

    async def again() -> Any:
        return message

    match title:
        case "slow":
            await asyncio.sleep(0.3)
        case "429" if first(title):
            return await answer(send, 429, headers=((b"retry-after", b"1"),))
        case "500 always":
            return await answer(send, 500)
        case "500" if first(title):
            return await answer(send, 500)
        case "garbage":
            return await answer(send, 200, b"<html>It works!</html>")
        case "silence" if first(title):
            return await answer(send, 202)
        case "killed" if first(title):
            await answer(send, 202)
            print("killed: accepted", flush=True)
            return
        case "twice":
            told = {"result": {"keywords": ["twice"], "embedding": [1.0]}}
            async with httpx.AsyncClient() as http:
                for _ in range(2):
                    (await http.post(headers["mapae-callback"], json=told)).raise_for_status()
            return await answer(send, 202)
    await ai.app(scope, again, send)
