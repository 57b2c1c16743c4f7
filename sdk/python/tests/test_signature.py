import pytest

from mapae import Secrets, SignatureInvalid

OLD = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NEW = "C2FVsBQIhrscChlQIMV+b5sSYspob7oDC2FVsBQIhrs="
AT = 1_796_000_000


def test_a_signature_is_the_standards() -> None:
    # The example of the standard's own libraries.
    body = b'{"test": 2432232314}'
    headers = Secrets(OLD).sign("msg_p5jXN8AQM9LWM0D4loKWxJek", body, at=1_614_265_330)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_while_secrets_are_rotated_either_side_may_be_first() -> None:
    both = Secrets([NEW, OLD])
    for one in (Secrets(OLD), Secrets(NEW)):
        one.verify(both.sign("a", b"{}", at=AT), b"{}", now=AT + 299)
        both.verify(one.sign("a", b"{}", at=AT), b"{}", now=AT - 299)


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-id": "b"},
        {"webhook-timestamp": str(AT + 1)},
        {"webhook-timestamp": "soon"},
        {"webhook-timestamp": str(AT - 301)},
        {"webhook-timestamp": str(AT + 301)},
        {"webhook-signature": "v1a,AAAA v1, x"},
        {"webhook-signature": ""},
    ],
)
def test_what_was_changed_is_refused(change: dict[str, str]) -> None:
    secrets = Secrets(OLD)
    headers = secrets.sign("a", b"{}", at=AT)
    with pytest.raises(SignatureInvalid):
        secrets.verify({**headers, **change}, b"{}", now=AT)


def test_another_body_another_secret_and_another_time_are_refused() -> None:
    secrets = Secrets(OLD)
    headers = secrets.sign("a", b"{}", at=AT)
    for verifier, body, now in ((secrets, b"{ }", AT), (Secrets(NEW), b"{}", AT), (secrets, b"{}", AT + 301)):
        with pytest.raises(SignatureInvalid):
            verifier.verify(headers, body, now=now)
    secrets.verify(headers, b"{}", now=AT + 301, tolerance=302)


@pytest.mark.parametrize("text", ["whsec_", "whsec_c2hvcnQ=", "hunter2", ""])
def test_a_secret_that_is_too_short_or_no_base64_is_refused_and_never_shown(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        Secrets(text)
    assert len(text) < 7 or text not in str(refused.value)
    assert "MfKQ" not in repr(Secrets(OLD))
