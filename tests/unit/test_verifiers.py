"""Verifiers: what is authentic, what is not, what a message is, and that no secret is shown."""

from __future__ import annotations

from base64 import b64decode
from contextlib import suppress
from typing import Any

import pytest
import time_machine
from django.test import RequestFactory
from hypothesis import assume, given, strategies as st

import hipq_django as hipq
from tests.signing import (
    SHOPIFY_SECRET,
    SLACK_SECRET,
    STANDARD_SECRET,
    STRIPE_SECRET,
    github_headers,
    shopify_headers,
    slack_headers,
    standard_headers,
    stripe_headers,
)

NOW = 1_700_000_000
BODY = b'{"order": "order-1"}'
TOKEN = {"X-Token": "s3cret"}

PARTNERS: dict[str, tuple[Any, Any, str]] = {
    "standard": (hipq.StandardWebhooksSignature, standard_headers, STANDARD_SECRET),
    "slack": (hipq.SlackSignature, slack_headers, SLACK_SECRET),
    "shopify": (hipq.ShopifySignature, lambda body, at: shopify_headers(body), SHOPIFY_SECRET),
    "stripe": (hipq.StripeSignature, stripe_headers, STRIPE_SECRET),
    "github": (hipq.GitHubSignature, lambda body, at: github_headers(body), STRIPE_SECRET),
}
"""How a verifier is made, and how its partner signs."""
ALL = pytest.mark.parametrize("name", list(PARTNERS))
TIMED = pytest.mark.parametrize("name", ["standard", "slack", "stripe"])


def request(body: bytes, headers: dict[str, str]) -> Any:
    return RequestFactory().post("/", body, content_type="application/json", headers=headers)


def refuses(verifier: Any, body: bytes, headers: dict[str, str]) -> str:
    """Return why a message is refused; fail if it is not."""
    with pytest.raises(hipq.ForgedWebhookError) as caught:
        verifier(request(body, headers))
    return str(caught.value)


@pytest.fixture(autouse=True)
def _time() -> Any:
    with time_machine.travel(NOW, tick=False):
        yield


# What partners publish

SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
    b"&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
    b"&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands"
    b"%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
PUBLISHED: dict[str, tuple[Any, int, bytes, dict[str, str]]] = {
    # From the tests of the project's own libraries.
    "standard": (
        hipq.StandardWebhooksSignature("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        1_614_265_330,
        b'{"test": 2432232314}',
        {
            "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "webhook-timestamp": "1614265330",
            "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        },
    ),
    # From Slack's page "Verifying requests from Slack".
    "slack": (
        hipq.SlackSignature("8f742231b10e8888abcd99yyyzzz85a5"),
        1_531_420_618,
        SLACK_BODY,
        {
            "X-Slack-Request-Timestamp": "1531420618",
            "X-Slack-Signature": (
                "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
            ),
        },
    ),
    # Shopify publishes no vector; this one was made with OpenSSL.
    "shopify": (
        hipq.ShopifySignature("hush"),
        NOW,
        b'{"id":820982911946154508}',
        {"X-Shopify-Hmac-Sha256": "qBvrsZF7RfB1iS6BX6IHqJTp5L911P7intnPeTPsH0I="},
    ),
    # From GitHub's page "Validating webhook deliveries".
    "github": (
        hipq.GitHubSignature("It's a Secret to Everybody"),
        NOW,
        b"Hello, World!",
        {
            "X-Hub-Signature-256": (
                "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
            )
        },
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_a_partner_publishes_is_authentic_and_nothing_else_is(name: str) -> None:
    verify, moment, body, headers = PUBLISHED[name]

    with time_machine.travel(moment, tick=False):
        assert verify(request(body, headers)) is True
        refuses(verify, body + b" ", headers)
        for header, value in headers.items():
            other = f"{int(value) + 1}" if value.isdigit() else f"{value}x"
            refuses(verify, body, headers | {header: other})


# What is signed


@ALL
def test_one_of_several_secrets_is_enough(name: str) -> None:
    make, sign, secret = PARTNERS[name]
    old = "whsec_b2xkZXIgc2VjcmV0"
    key = b64decode(secret.removeprefix("whsec_")) if name == "standard" else secret.encode()

    for known in ([old, secret], (secret, old), lambda: [old, secret], lambda: secret, key):
        assert make(known)(request(BODY, sign(BODY, NOW))) is True
    assert "not right" in refuses(make(old), BODY, sign(BODY, NOW))


@ALL
def test_a_missing_header_is_named(name: str) -> None:
    make, sign, secret = PARTNERS[name]
    headers = sign(BODY, NOW)

    for missing in headers:
        left = {header: value for header, value in headers.items() if header != missing}
        assert refuses(make(secret), BODY, left) == f"header {missing} is missing."


@TIMED
def test_a_signature_is_no_older_than_the_tolerance(name: str) -> None:
    make, sign, secret = PARTNERS[name]

    for tolerance in (300, 5):
        verify = make(secret, tolerance=tolerance)
        for skew in (-tolerance, 0, tolerance):
            assert verify(request(BODY, sign(BODY, NOW + skew))) is True
        for skew in (-tolerance - 1, tolerance + 1, -NOW, 900_000_000_000 - NOW):
            reason = refuses(verify, BODY, sign(BODY, NOW + skew))
            assert f"{-skew} seconds old, and {tolerance} are allowed" in reason


@pytest.mark.parametrize("name", ["standard", "slack"])
@pytest.mark.parametrize("time", ["-1", "1e9", f"{NOW}.0", "nan", "9" * 13, "\u0661\u0667"])
def test_a_header_that_has_no_time_is_refused(name: str, time: str) -> None:
    make, sign, secret = PARTNERS[name]

    reason = refuses(make(secret), BODY, sign(BODY, time))

    assert "is not a number of seconds since 1970, such as 1700000000." in reason


@ALL
@pytest.mark.parametrize("number", range(6))
def test_another_signature_is_refused(name: str, number: int) -> None:
    make, sign, secret = PARTNERS[name]
    headers = sign(BODY, NOW)
    header, good = list(headers.items())[-1]
    other = ["v0=", "v1,", "é", good[:-1], good.swapcase(), good + "é"][number]

    refuses(make(secret), BODY, headers | {header: other})


@ALL
@given(data=st.data())
def test_no_header_is_more_than_refused(name: str, data: st.DataObject) -> None:
    make, sign, secret = PARTNERS[name]
    headers = {header: data.draw(st.text(max_size=99)) for header in sign(BODY, NOW)}

    refuses(make(secret), BODY, headers)


@ALL
@given(body=st.binary(max_size=99), other=st.binary(max_size=99))
def test_a_signature_of_another_body_is_refused(name: str, body: bytes, other: bytes) -> None:
    make, sign, secret = PARTNERS[name]
    assume(body != other)

    refuses(make(secret), body, sign(other, NOW))


# Headers of each partner

DIGEST = stripe_headers(BODY, NOW)["Stripe-Signature"].partition("v1=")[2]
STANDARD = standard_headers(BODY, NOW)["webhook-signature"].removeprefix("v1,")


def test_one_good_signature_among_several_is_enough() -> None:
    several = {"Stripe-Signature": f"t={NOW}, v0=abc, v1={'0' * 64}, v1={DIGEST}"}
    assert hipq.StripeSignature(STRIPE_SECRET)(request(BODY, several)) is True

    entries = f"v1a,{STANDARD} v1,Zm9yZ2Vk v1,{STANDARD} v2,{STANDARD}"
    headers = standard_headers(BODY, NOW) | {"webhook-signature": entries}
    assert hipq.StandardWebhooksSignature(STANDARD_SECRET)(request(BODY, headers)) is True


@pytest.mark.parametrize(
    "header",
    [
        *("t", "=", ",", f"t={NOW}", f"v1={DIGEST}", f"t={NOW},v1=", f"t=,v1={DIGEST}"),
        *(f"t={NOW},t={NOW},v1={DIGEST}", f"t={NOW},v0={DIGEST}", f"t=-{NOW},v1={DIGEST}"),
        *(f"t={NOW}.0,v1={DIGEST}", f"t={'9' * 10_000},v1={DIGEST}", f"t=\u0661,v1={DIGEST}"),
    ],
)
def test_a_header_of_stripe_of_another_form_is_refused(header: str) -> None:
    refuses(hipq.StripeSignature(STRIPE_SECRET), BODY, {"Stripe-Signature": header})


@pytest.mark.parametrize("version", ["v1a", "v2", "V1", ""])
def test_an_entry_of_another_version_is_passed_over(version: str) -> None:
    headers = standard_headers(BODY, NOW) | {"webhook-signature": f"{version},{STANDARD}"}

    reason = refuses(hipq.StandardWebhooksSignature(STANDARD_SECRET), BODY, headers)

    assert reason == "header webhook-signature has no signature v1,…."


def test_headers_and_prefixes_can_be_chosen() -> None:
    stripe = hipq.StripeSignature(STRIPE_SECRET, header="X-Bank")
    signed = stripe_headers(BODY, NOW)
    assert stripe(request(BODY, {"X-Bank": signed["Stripe-Signature"]})) is True
    assert refuses(stripe, BODY, signed) == "header X-Bank is missing."

    standard = hipq.StandardWebhooksSignature(STANDARD_SECRET, headers="svix-")
    signed = standard_headers(BODY, NOW)
    named = {name.replace("webhook-", "svix-"): value for name, value in signed.items()}
    assert standard(request(BODY, named)) is True
    assert refuses(standard, BODY, signed) == "header svix-timestamp is missing."

    github = hipq.GitHubSignature(STRIPE_SECRET, header="X-Signature", prefix="")
    digits = github_headers(BODY)["X-Hub-Signature-256"].removeprefix("sha256=")
    assert github(request(BODY, {"X-Signature": digits})) is True
    refuses(github, BODY, {"X-Signature": f"sha256={digits}"})


# The secret itself


@pytest.mark.parametrize("secret", ["s3cret", "Bearer abc", b"\xff\x80", "schlüssel"])
def test_a_shared_secret_is_authentic(secret: str | bytes) -> None:
    sent = (secret.encode() if isinstance(secret, str) else secret).decode("latin-1")

    assert hipq.SharedSecret("X-Token", secret)(request(BODY, {"X-Token": sent})) is True


@pytest.mark.parametrize("sent", ["", "s3cre", "s3crett", "S3CRET", "s3cret,s3cret", "…", "\udcff"])
def test_another_secret_is_refused(sent: str) -> None:
    refuses(hipq.SharedSecret("X-Token", "s3cret"), BODY, {"X-Token": sent})


@pytest.mark.parametrize("expected", ["s3cret", "another", lambda: ""])
def test_a_secret_does_not_stay_in_the_request_where_error_reports_would_show_it(
    expected: Any,
) -> None:
    message = request(BODY, TOKEN)

    with suppress(hipq.ForgedWebhookError, hipq.ConfigurationError):
        hipq.SharedSecret("X-Token", expected)(message)

    assert "s3cret" not in f"{message.META} {message.headers}"


def test_who_says_so_believes_everybody() -> None:
    assert hipq.NoVerification()(request(BODY, {})) is True


# What is set up


def test_a_function_is_asked_at_each_message() -> None:
    secrets = ["first"]
    verify = hipq.GitHubSignature(lambda: secrets)
    refuses(verify, BODY, github_headers(BODY))

    secrets.append(STRIPE_SECRET)

    assert verify(request(BODY, github_headers(BODY))) is True


UNUSABLE: list[tuple[Any, str]] = [
    ("", "the secret is empty"),
    ([], "the list of secrets is empty"),
    (["good", ""], "the secret is empty"),
    (42, "of type int"),
    ([None], "of type NoneType"),
    ("s3cret\n", "white space"),
]


@pytest.mark.parametrize(("secret", "reason"), UNUSABLE)
def test_a_secret_that_protects_nothing_is_refused(secret: Any, reason: str) -> None:
    for make, _sign, _secret in PARTNERS.values():
        with pytest.raises(hipq.ConfigurationError, match=reason) as caught:
            make(secret)
        assert "s3cret" not in str(caught.value)
    asks = hipq.SharedSecret("X-Token", lambda: secret)
    with pytest.raises(hipq.ConfigurationError, match=reason):
        asks(request(BODY, TOKEN))


def test_a_function_that_raises_is_named_without_what_it_says() -> None:
    def ask() -> str:
        raise OSError("vault at 10.0.0.1 refused token hunter2")

    with pytest.raises(hipq.ConfigurationError, match="raised OSError") as caught:
        hipq.SharedSecret("X-Token", ask)(request(BODY, TOKEN))

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("secret", [STANDARD_SECRET, STANDARD_SECRET[6:], "whsec_YQ", "YQ=="])
def test_a_secret_is_base64_with_or_without_its_prefix(secret: str) -> None:
    padded = secret + "=" * (-len(secret.removeprefix("whsec_")) % 4)
    headers = standard_headers(BODY, NOW, secret=padded)

    assert hipq.StandardWebhooksSignature(secret)(request(BODY, headers)) is True


@pytest.mark.parametrize("secret", ["whsec_", "whsec_no base64", "whpk_YQ==", "é", "Q"])
def test_a_secret_that_is_not_base64_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(hipq.ConfigurationError) as caught:
        hipq.StandardWebhooksSignature(secret)

    assert caught.value.__context__ is None
    assert str(caught.value) == (
        "StandardWebhooksSignature: the secret is not 'whsec_' and base64; copy it as the partner "
        "shows it, or give the key itself as bytes."
    )


@pytest.mark.parametrize("header", ["", "X Token", "X-Token:", "X\nY", None, "ü"])
def test_a_header_must_have_a_name(header: Any) -> None:
    with pytest.raises(hipq.ConfigurationError, match="is not the name of a header"):
        hipq.SharedSecret(header, "s3cret")


@pytest.mark.parametrize("tolerance", [0, -1, float("nan"), float("inf"), "300", None, True])
def test_a_tolerance_is_a_number_of_seconds(tolerance: Any) -> None:
    with pytest.raises(hipq.ConfigurationError, match=r"^StripeSignature: .* give seconds above 0"):
        hipq.StripeSignature("s", tolerance=tolerance)


@ALL
def test_no_secret_is_in_what_is_printed_or_said(name: str) -> None:
    make, sign, secret = PARTNERS[name]
    verify = make([secret, "whsec_b2xkZXIgc2VjcmV0"])
    shown = f"{verify!r} {verify} {vars(verify)} {refuses(verify, b'', sign(BODY, NOW))}"

    assert secret.removeprefix("whsec_") not in shown
    assert "b2xkZXIgc2VjcmV0" not in shown


# What a message is


def test_the_id_of_a_standard_message_is_its_header() -> None:
    verify = hipq.StandardWebhooksSignature(STANDARD_SECRET)
    headers = standard_headers(BODY, NOW)

    assert verify.message_id(request(BODY, headers)) == "msg_1"
    assert "not ASCII" in refuses(verify, BODY, headers | {"webhook-id": "é"})


def test_a_request_of_slack_is_the_same_message_while_time_and_body_are() -> None:
    verify = hipq.SlackSignature([SLACK_SECRET, "another"])

    def known_as(body: bytes, at: int, secret: str = SLACK_SECRET) -> str:
        message = request(body, slack_headers(body, at, secret=secret))
        assert verify(message) is True
        return verify.message_id(message)

    assert known_as(BODY, NOW) == known_as(BODY, NOW, "another")
    assert len({known_as(BODY, NOW), known_as(BODY, NOW + 1), known_as(BODY + b" ", NOW)}) == 3


def test_a_body_of_shopify_is_the_same_message_whatever_is_not_signed() -> None:
    verify = hipq.ShopifySignature(SHOPIFY_SECRET)
    plain = request(BODY, shopify_headers(BODY))
    renamed = request(BODY, shopify_headers(BODY) | {"X-Shopify-Event-Id": "another"})

    assert verify.message_id(plain) == verify.message_id(renamed)
    assert verify.message_id(plain) != verify.message_id(request(b"{}", shopify_headers(b"{}")))
