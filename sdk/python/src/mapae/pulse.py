"""The worker's side of its heart (:mod:`mapae.heart`): starts it, tells it what is held, hears what was lost."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .protocol import Server

log = logging.getLogger("mapae")

# The same package, wherever this one was found, and nothing that lies in the working directory.
PROGRAM = "import sys; sys.path.pop(0); sys.path.append(sys.argv[1]); from mapae.heart import main; main()"

# Seconds before a heart that ended by itself is started again.
RESTART = 0.5

# Seconds that a heart has to start: a busy machine needs some.
START_MAX = 60.0

# Seconds that a heart has to end once it was told to.
END_MAX = 5.0


class Pulse:
    """A running heart. `hear` is called with a token and what became of its lease: `lease-lost` or `cancelled`."""

    def __init__(self, server: Server, hear: Callable[[str, str], None]) -> None:
        self._server = server
        self._hear = hear
        self._held: dict[str, dict[str, Any]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """When this returns, the heart beats: what is leased from now on does not wait for it. It is started again where
        it ends, until `end`. RuntimeError where it cannot be started at all."""
        await self._start()
        assert self._process is not None and self._process.stdout is not None
        try:
            ready = await asyncio.wait_for(self._process.stdout.readline(), START_MAX)
        except asyncio.TimeoutError:
            ready = b""
        if not ready:
            await self.end()
            raise RuntimeError("the process that sends the heartbeats cannot be started; its own message is above")
        self._keeping = asyncio.create_task(self._keep())

    def hold(self, job: str, token: str, lease: float, most: float) -> None:
        """The lease of `lease` seconds is renewed from now on, for `most` seconds at most."""
        self._held[token] = {"hold": job, "token": token, "lease": lease, "most": most}
        self._say(self._held[token])

    def drop(self, token: str) -> None:
        """The lease is nobody's concern any more."""
        if self._held.pop(token, None) is not None:
            self._say({"drop": token})

    async def end(self) -> None:
        """No heartbeat is sent after this."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                await asyncio.wait_for(self._process.wait(), END_MAX)
            except asyncio.TimeoutError:
                self._process.kill()
                await self._process.wait()

    async def _start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PROGRAM,
            str(Path(__file__).resolve().parent.parent),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # A signal for the worker's group is for the worker.
            start_new_session=True,
        )
        self._say(asdict(self._server))
        for held in self._held.values():
            # Nobody knows how long there was no heartbeat.
            self._say({**held, "at_once": True})

    async def _keep(self) -> None:
        while True:
            process = self._process
            assert process is not None and process.stdout is not None
            while line := await process.stdout.readline():
                said = json.loads(line)
                for word, reason in (("lost", "lease-lost"), ("cancel", "cancelled")):
                    if word in said:
                        self._hear(said[word], reason)
            code = await process.wait()
            log.warning("the process that sends the heartbeats ended and is started again exit_code=%s", code)
            await asyncio.sleep(RESTART)
            try:
                await self._start()
            except OSError as error:  # too many processes, no memory: looked at again after the same pause
                log.error("the process that sends the heartbeats cannot be started: %s", type(error).__name__)

    def _say(self, word: dict[str, Any]) -> None:
        if self._process is None or self._process.stdin is None or self._process.stdin.is_closing():
            return  # it is told of everything when it has been started again
        self._process.stdin.write(json.dumps(word).encode() + b"\n")
