"""The AI service: says 202, makes keywords and an embedding, tells the end. `uvicorn ai:app --port 8001`

What it makes is a toy, so that the example needs no model; how it answers is the point.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter
from typing import Any

from fastapi import FastAPI
from starlette.routing import Route

from mapae import Push

push = Push(secrets=[os.environ.get("AI_SECRET", "whsec_c2VjcmV0LW9mLXRoZS1leGFtcGxlLW9ubHkhIQ==")])

DIMENSIONS = 16


@push.handler("context.process", later=True, timeout=120)
def process(params: dict[str, Any]) -> dict[str, Any]:
    words = [word.strip(".,;:!?").lower() for word in f"{params['title']} {params['text']}".split()]
    counted = Counter(word for word in words if len(word) > 3)
    vector = [0.0] * DIMENSIONS
    for word in words:
        digest = hashlib.sha256(word.encode()).digest()
        vector[digest[0] % DIMENSIONS] += 1.0 if digest[1] % 2 else -1.0
    length = math.hypot(*vector) or 1.0
    return {
        "keywords": [word for word, _ in counted.most_common(5)],
        "embedding": [value / length for value in vector],
    }


app = FastAPI(lifespan=push.lifespan)
app.router.routes.append(Route("/internal/v1/context/process", push.at("context.process")))
