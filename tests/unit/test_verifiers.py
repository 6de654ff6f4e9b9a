"""Verifiers: what is authentic, what is not, and that no secret is shown."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import time_machine
from django.test import RequestFactory
from hypothesis import given, strategies as st

import hipq_django as hipq
from tests.signing import github_headers, stripe_headers

NOW = 1_700_000_000
SECRET = "whsec_c2VjcmV0"
BODY = b'{"order": "order-1"}'


def request(body: bytes = BODY, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return RequestFactory().post("/", body, content_type="application/json", headers=named)


def stripe_header(body: bytes = BODY, secret: str = SECRET, at: Any = NOW) -> str:
    return stripe_headers(body, at, secret=secret)["Stripe-Signature"]


def github_header(body: bytes = BODY, secret: str = SECRET) -> str:
    return github_headers(body, secret=secret)["X-Hub-Signature-256"]


def refuses(verifier: Any, message: Any) -> str:
    """Return why a message is refused; fail if it is not."""
    with pytest.raises(hipq.ForgedWebhookError) as caught:
        verifier(message)
    return str(caught.value)


@pytest.fixture(autouse=True)
def _time() -> Any:
    with time_machine.travel(NOW, tick=False):
        yield


# Signed with a time


def test_one_good_signature_among_several_is_enough() -> None:
    digest = stripe_header().partition("v1=")[2]
    header = f"t={NOW}, v0=abc, v1={'0' * 64}, v1={digest}"

    assert hipq.StripeSignature(SECRET)(request(Stripe_Signature=header)) is True


def test_the_tolerance_and_the_header_can_be_chosen() -> None:
    verify = hipq.StripeSignature(SECRET, tolerance=5, header="X-Bank-Signature")

    assert verify(request(X_Bank_Signature=stripe_header(at=NOW - 5))) is True
    refuses(verify, request(X_Bank_Signature=stripe_header(at=NOW - 6)))
    assert "X-Bank-Signature is missing" in refuses(
        verify, request(Stripe_Signature=stripe_header())
    )


DIGEST = stripe_header().partition("v1=")[2]


@pytest.mark.parametrize(
    "header",
    [
        *("t", "t=", "=", ",", "v1", f"t={NOW}", f"v1={DIGEST}", f"t={NOW},v1=", f"t=,v1={DIGEST}"),
        *(f"t={NOW},t={NOW},v1={DIGEST}", f"t={NOW},v0={DIGEST}", f"t={NOW},v1={DIGEST[:-1]}"),
        *(f"t=-{NOW},v1={DIGEST}", f"t={NOW}.0,v1={DIGEST}", f"t=nan,v1={DIGEST}"),
        *(f"t={'9' * 10_000},v1={DIGEST}", f"t=\u0661\u0667,v1={DIGEST}", f"t={NOW},v1=é{DIGEST}"),
    ],
)
def test_a_header_of_another_form_is_refused(header: str) -> None:
    refuses(hipq.StripeSignature(SECRET), request(Stripe_Signature=header))


# Signed without a time


def test_the_example_of_github_is_authentic() -> None:
    # From GitHub's page "Validating webhook deliveries".
    verify = hipq.GitHubSignature("It's a Secret to Everybody")
    header = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"

    assert verify(request(b"Hello, World!", X_Hub_Signature_256=header)) is True
    refuses(verify, request(b"Hello, World?", X_Hub_Signature_256=header))


def test_a_prefix_can_be_chosen() -> None:
    verify = hipq.GitHubSignature(SECRET, header="X-Signature", prefix="")
    digits = github_header().removeprefix("sha256=")

    assert verify(request(X_Signature=digits)) is True
    refuses(verify, request(X_Signature=github_header()))


# The secret itself


@pytest.mark.parametrize("secret", ["s3cret", "Bearer abc", b"\xff\x80", "schlüssel"])
def test_a_shared_secret_is_authentic(secret: str | bytes) -> None:
    sent = (secret.encode() if isinstance(secret, str) else secret).decode("latin-1")

    assert hipq.SharedSecret("X-Token", secret)(request(X_Token=sent)) is True


@pytest.mark.parametrize("sent", ["", "s3cre", "s3crett", "S3CRET", "s3cret,s3cret", "…", "\udcff"])
def test_another_secret_is_refused(sent: str) -> None:
    refuses(hipq.SharedSecret("X-Token", "s3cret"), request(X_Token=sent))


@pytest.mark.parametrize("expected", ["s3cret", "another", lambda: ""])
def test_a_secret_does_not_stay_in_the_request_where_error_reports_would_show_it(
    expected: Any,
) -> None:
    message = request(X_Hook="s3cret")

    with suppress(hipq.ForgedWebhookError, hipq.ConfigurationError):
        hipq.SharedSecret("X-Hook", expected)(message)

    assert "s3cret" not in str(message.META)
    assert "s3cret" not in str(message.headers)


def test_who_says_so_believes_everybody() -> None:
    assert hipq.NoVerification()(request()) is True


# Several secrets, and functions that return them


def test_a_function_is_asked_at_each_message() -> None:
    secrets = ["first"]
    verify = hipq.GitHubSignature(lambda: secrets)
    refuses(verify, request(X_Hub_Signature_256=github_header()))

    secrets.append(SECRET)

    assert verify(request(X_Hub_Signature_256=github_header())) is True


BY_DIALECT: list[Any] = [
    hipq.StripeSignature,
    hipq.GitHubSignature,
    lambda secret: hipq.SharedSecret("X-Token", secret),
    hipq.StandardWebhooksSignature,
    hipq.SlackSignature,
    hipq.ShopifySignature,
]
DIALECTS = ["stripe", "github", "shared", "standard", "slack", "shopify"]
UNUSABLE: list[tuple[Any, str]] = [
    ("", "the secret is empty"),
    (b"", "the secret is empty"),
    ([], "the list of secrets is empty"),
    ((), "the list of secrets is empty"),
    (["good", ""], "the secret is empty"),
    (None, "of type NoneType"),
    (42, "of type int"),
    ([None], "of type NoneType"),
    ("s3cret\n", "white space"),
    (" ", "white space"),
]


@pytest.mark.parametrize("make", BY_DIALECT, ids=DIALECTS)
def test_a_secret_that_protects_nothing_is_refused_at_once(make: Any) -> None:
    for secret, reason in UNUSABLE:
        with pytest.raises(hipq.ConfigurationError, match=reason) as caught:
            make(secret)

        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("make", BY_DIALECT, ids=DIALECTS)
def test_a_function_that_returns_no_usable_secret_lets_nobody_in(make: Any) -> None:
    headers = {"X_Token": "x", "X_Hub_Signature_256": github_header(secret="")}
    headers |= {"X_Slack_Request_Timestamp": f"{NOW}", "X_Slack_Signature": "v0=0"}
    headers |= {"webhook_id": "1", "webhook_timestamp": f"{NOW}", "webhook_signature": "v1,0"}
    headers |= {"X_Shopify_Hmac_Sha256": "0", "Stripe_Signature": stripe_header(secret="")}
    message = request(BODY, **headers)

    for secret, reason in UNUSABLE:
        with pytest.raises(hipq.ConfigurationError, match=reason):
            make(lambda secret=secret: secret)(message)


def test_a_function_that_raises_is_named_without_what_it_says() -> None:
    def ask() -> str:
        raise OSError("vault at 10.0.0.1 refused token hunter2")

    with pytest.raises(hipq.ConfigurationError, match="raised OSError") as caught:
        hipq.SharedSecret("X-Token", ask)(request(X_Token="x"))

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("header", ["", "X Token", "X-Token:", "X\nY", None, "ü"])
def test_a_header_must_have_a_name(header: Any) -> None:
    with pytest.raises(hipq.ConfigurationError, match="is not the name of a header"):
        hipq.SharedSecret(header, "s3cret")


@pytest.mark.parametrize("tolerance", [0, -1, float("nan"), float("inf"), "300", None, True])
def test_a_tolerance_is_a_number_of_seconds(tolerance: Any) -> None:
    with pytest.raises(hipq.ConfigurationError, match="give seconds above 0"):
        hipq.StripeSignature("s", tolerance=tolerance)


# Whatever is sent


@given(
    time=st.text(alphabet="0123456789.-+e ", max_size=30),
    signatures=st.lists(st.text(alphabet="0123456789abcdef", max_size=70), max_size=5),
)
def test_no_timed_header_is_more_than_refused(time: str, signatures: list[str]) -> None:
    header = ",".join([f"t={time}", *(f"v1={signature}" for signature in signatures)])

    refuses(hipq.StripeSignature(SECRET), request(Stripe_Signature=header))
