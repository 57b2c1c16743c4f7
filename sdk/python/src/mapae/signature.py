"""Standard Webhooks 1.0.0: HMAC-SHA256 over `id.timestamp.body`, several secrets while they are rotated.

The specification: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Iterable, Mapping

# How far a signature's time may be from now, in seconds: older ones may be replayed, and clocks differ.
TOLERANCE = 300.0

# The sizes of secret that the standard allows, in bytes.
_SECRET_BYTES = range(24, 65)


class SignatureInvalid(Exception):
    """The call was not signed with one of the secrets, or not lately. Says nothing about which."""

    def __init__(self) -> None:
        super().__init__("The signature is missing, wrong or too old.")


class Secrets:
    """The secrets of one party: each signs, and any one proves. Not printable.

    Each is base64 of 24 to 64 bytes, with `whsec_` before it or without; ValueError where one is not.
    """

    def __init__(self, texts: str | Iterable[str]) -> None:
        texts = [texts] if isinstance(texts, str) else list(texts)
        if not texts:
            raise ValueError("at least one secret is needed")
        self._keys = [_key(text) for text in texts]

    def __repr__(self) -> str:
        return f"Secrets({len(self._keys)})"

    def sign(self, id: str, body: bytes, *, at: float | None = None) -> dict[str, str]:
        """The headers of a message with this id. `at` is a Unix time, now where it is not given."""
        timestamp = str(int(time.time() if at is None else at))
        signatures = [b"v1," + base64.b64encode(_hmac(key, id, timestamp, body)) for key in self._keys]
        return {
            "webhook-id": id,
            "webhook-timestamp": timestamp,
            "webhook-signature": b" ".join(signatures).decode(),
        }

    def verify(
        self,
        headers: Mapping[str, str],
        body: bytes,
        *,
        tolerance: float = TOLERANCE,
        now: float | None = None,
    ) -> None:
        """Returns where one signature was made with one of the secrets and not more than `tolerance` seconds from
        `now`; raises :class:`SignatureInvalid` otherwise. `headers` has lower-case names, or takes any."""
        id, timestamp = headers.get("webhook-id"), headers.get("webhook-timestamp")
        signatures = headers.get("webhook-signature")
        if not id or not timestamp or not signatures:
            raise SignatureInvalid
        if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 15):
            raise SignatureInvalid
        if abs((time.time() if now is None else now) - int(timestamp)) > tolerance:
            raise SignatureInvalid
        given = [_decoded(signature) for signature in signatures.split(" ")]
        for key in self._keys:
            made = _hmac(key, id, timestamp, body)
            if any(hmac.compare_digest(made, signature) for signature in given):
                return
        raise SignatureInvalid


def _hmac(key: bytes, id: str, timestamp: str, body: bytes) -> bytes:
    return hmac.digest(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256)


def _decoded(signature: str) -> bytes:
    version, _, text = signature.partition(",")
    try:
        return base64.b64decode(text, validate=True) if version == "v1" else b""
    except (binascii.Error, ValueError):
        return b""


def _key(text: str) -> bytes:
    try:
        key = base64.b64decode(text.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) not in _SECRET_BYTES:
        # Without the text: this is shown where errors are.
        raise ValueError("a secret is base64 of 24 to 64 bytes, with `whsec_` before it or without")
    return key
