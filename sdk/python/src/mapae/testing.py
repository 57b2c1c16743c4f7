"""A server for tests: the real program, on a port and in a folder of its own, stopped with the block.

with Server() as server:
    job = server.client.submit("embed", {"text": "…"})
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from .client import Mapae

# Seconds that the server has to start, and to end once it was asked to.
START_MAX = 60.0
STOP_MAX = 70.0

_READY = re.compile(r"API +(http://\S+)\s+key +(\S+)")


class ServerFailed(Exception):
    """The server could not be started. The end of its log is in the message."""


class Server:
    """`mapae dev`: API, worker and keeper in one process, on SQLite.

    `config` is the text of its `mapae.toml`. The program is `binary`, else what the variable MAPAE_BINARY names, else
    `mapae` in PATH; it sees no other MAPAE_ variable of this process. `key` may do everything, for all owners.
    """

    def __init__(self, *, config: str = "", binary: str | os.PathLike[str] | None = None) -> None:
        found = binary or os.environ.get("MAPAE_BINARY") or shutil.which("mapae")
        if not found:
            raise ServerFailed("there is no program `mapae`: install it, or name it in MAPAE_BINARY")
        self._binary = os.path.abspath(found)
        self._folder = tempfile.TemporaryDirectory(prefix="mapae-test-")
        (self.folder / "mapae.toml").write_text(config)
        self._listen = "127.0.0.1:0"
        self._process: subprocess.Popen[str] | None = None
        self._client: Mapae | None = None
        self.url = ""
        self.key = ""

    @property
    def folder(self) -> Path:
        """Where its configuration, its database and its log are."""
        return Path(self._folder.name)

    @property
    def client(self) -> Mapae:
        """A client of its own, closed with the server."""
        if self._client is None:
            self._client = Mapae(self.url, self.key)
        return self._client

    @property
    def pid(self) -> int:
        """The number of its process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> Server:
        """Returns once it answers. After a stop it is the same server: its data, its address and its key."""
        with open(self.folder / "log", "ab") as log:
            words = ["dev", "--data", "data", "--listen", self._listen, "--config", "mapae.toml"]
            words += ["--key", self.key] if self.key else []
            self._process = subprocess.Popen(
                [self._binary, *words],
                cwd=self.folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                # Ctrl-C in a terminal goes to its whole group: the server's end is ours to decide.
                start_new_session=True,
            )
        late = threading.Timer(START_MAX, self._process.kill)
        late.start()
        try:
            said = ""
            assert self._process.stdout is not None
            while not (ready := _READY.search(said)):
                line = self._process.stdout.readline()
                if not line:
                    self._process.wait()
                    raise ServerFailed(f"the server did not start; the end of its log:\n{self.log()[-2000:]}")
                said += line
        finally:
            late.cancel()
        self.url, self.key = ready[1], ready[2]
        self._listen = self.url.removeprefix("http://")
        return self

    def make_key(self, scopes: Sequence[str], owner: str | None = None) -> str:
        """A key with these scopes, of one owner or of all."""
        words = ["key", "create", "--scopes", ",".join(scopes), "--output", "id"]
        words += ["--owner", owner] if owner else ["--all-owners"]
        made = subprocess.run(
            [self._binary, *words, "--config", "mapae.toml"],
            cwd=self.folder,
            env={**_environment(), "MAPAE_DATABASE_URL": "sqlite:data/mapae.db"},
            check=True,
            capture_output=True,
            text=True,
        )
        return made.stdout.strip().split()[-1]

    def log(self) -> str:
        """What it has written so far."""
        return (self.folder / "log").read_text(errors="replace")

    def stop(self) -> None:
        """Asks it to end, and waits until it has."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it as a crash would."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """Stops it and removes its folder."""
        self.stop()
        if self._client is not None:
            self._client.close()
        self._folder.cleanup()

    def __enter__(self) -> Server:
        try:
            return self.start()
        except BaseException:
            self._folder.cleanup()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("MAPAE_")}
