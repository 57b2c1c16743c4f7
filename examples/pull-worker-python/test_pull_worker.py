"""The worker as its README runs it, against the real program."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from mapae.testing import Server


def test_the_worker_counts_and_ends_in_order() -> None:
    with Server() as server:
        env = {**os.environ, "MAPAE_URL": server.url, "MAPAE_KEY": server.key}
        worker = subprocess.Popen([sys.executable, Path(__file__).parent / "worker.py"], env=env)
        try:
            job = server.client.submit("text.words", {"text": "to be or not to be"})
            empty = server.client.submit("text.words", {})
            assert server.client.wait(job.id, timeout=60).raise_unless_succeeded()
            assert server.client.result(job.id) == {"to": 2, "be": 2, "or": 1, "not": 1}
            failure = server.client.wait(empty.id, timeout=60).failure
            assert failure is not None and failure.code == "text-missing"
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(60) == 0
        finally:
            worker.kill()
            worker.wait()
