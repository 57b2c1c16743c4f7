"""One server for most tests; kinds are named after the tests, so they do not meet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from mapae import Mapae, Worker
from mapae.testing import Server

# A job that has not ended after so many seconds never will: the tests fail instead of hanging.
AT_MOST = 60.0

CONFIG = """
[kind."quick"]
attempts = 2
backoff = "10ms..10ms"
"""


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with Server(config=CONFIG) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Mapae:
    return server.client


@pytest.fixture
def working(server: Server) -> Callable[[Worker], object]:
    """Runs a worker beside the test and ends it after the block."""
    import asyncio

    @contextmanager
    def run(worker: Worker) -> Iterator[Worker]:
        raised: list[BaseException] = []

        def serve() -> None:
            try:
                asyncio.run(worker.serve())
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield worker
        finally:
            while thread.is_alive():
                worker.stop()
                thread.join(0.05)
        assert not raised, raised

    return run
