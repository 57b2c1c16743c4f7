"""Counts the words of texts: a worker for the kind `text.words`, run beside any mapae server.

MAPAE_URL=http://127.0.0.1:7070 MAPAE_KEY=… python worker.py
mapae submit text.words --params '{"text": "to be or not to be"}' --wait
"""

import logging
from collections import Counter

from mapae import Context, Terminal, Worker

worker = Worker(slots=4)


@worker.job("text.words", timeout=60)
def count_words(params: dict[str, str], ctx: Context) -> dict[str, int]:
    if "text" not in params:
        raise Terminal("text-missing", "The params have no `text`.")
    # Kept with the job: an attempt after a crash goes on from here.
    words = ctx.stage("split", lambda: params["text"].lower().split())
    counted: Counter[str] = Counter()
    for number, word in enumerate(words, 1):
        ctx.progress(number, len(words), "count")  # also ends the work when its owner cancels it
        counted[word] += 1
    return dict(counted.most_common(10))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    worker.run()  # SIGTERM lets what runs end, and hands the rest back
