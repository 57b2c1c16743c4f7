"""Reports that travel together, to a server that answers each as it likes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from mapae import Lease, errors
from mapae.teller import REPORTS_MAX, Teller


def test_what_waits_goes_together_and_each_is_answered_by_itself() -> None:
    sent: list[tuple[str, Any]] = []
    answers = {
        "fine": {"status": 200, "cancel_requested": False},
        "cancelled": {"status": 200, "cancel_requested": True},
        "lost": {"status": 409, "code": "lease-lost"},
        "later": {"status": 503, "code": "database-unavailable"},
    }

    async def post(path: str, body: bytes) -> Any:
        said = json.loads(body)
        sent.append((path, said))
        await asyncio.sleep(0)
        if "items" not in said:
            return {"state": "succeeded", "cancel_requested": False}
        return {"items": [answers.get(item["job"], answers["fine"]) for item in said["items"]]}

    async def tell() -> list[Any]:
        teller = Teller(post)
        alone = await teller.tell(Lease("alone", "k", {}, 1, "key", token="t"), "release", {})
        names = [*answers, *(f"more-{n}" for n in range(REPORTS_MAX))]
        leases = [Lease(name, "k", {}, 1, "key", token=f"token of {name}") for name in names]
        reports = [teller.tell(lease, "complete", {"result": lease.id}) for lease in leases]
        return [alone, *await asyncio.gather(*reports, return_exceptions=True)]

    alone, fine, cancelled, lost, later, *more = asyncio.run(tell())
    assert (alone, fine, cancelled) == (False, False, True)
    assert isinstance(lost, errors.LeaseLost) and isinstance(later, errors.Unavailable)
    assert more == [False] * REPORTS_MAX
    paths = [path for path, _ in sent]
    assert paths == ["/v1/leases/alone/release", "/v1/leases/batch", "/v1/leases/batch"]
    item = sent[1][1]["items"][0]
    assert item == {"job": "fine", "do": "complete", "token": "token of fine", "result": "fine"}
