"""Verifiers of partners who sign: what is authentic, and what a message is."""

from __future__ import annotations

from base64 import b64decode
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


def test_the_vector_of_standard_webhooks_is_authentic() -> None:
    # From the tests of the project's own libraries.
    body = b'{"test": 2432232314}'
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    verify = hipq.StandardWebhooksSignature("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

    with time_machine.travel(1_614_265_330, tick=False):
        assert verify(request(body, headers)) is True
        refuses(verify, body + b" ", headers)
        refuses(verify, body, headers | {"webhook-id": "msg_another"})
        refuses(verify, body, headers | {"webhook-timestamp": "1614265331"})


def test_the_example_of_slack_is_authentic() -> None:
    # From Slack's page "Verifying requests from Slack".
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
        b"&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
        b"&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands"
        b"%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    headers = {
        "X-Slack-Request-Timestamp": "1531420618",
        "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    }
    verify = hipq.SlackSignature("8f742231b10e8888abcd99yyyzzz85a5")

    with time_machine.travel(1_531_420_618, tick=False):
        assert verify(request(body, headers)) is True
        refuses(verify, body + b"&", headers)
        refuses(verify, body, headers | {"X-Slack-Request-Timestamp": "1531420619"})


def test_a_message_signed_like_shopifys_is_authentic() -> None:
    # Shopify publishes no vector; this one was made with OpenSSL.
    headers = {"X-Shopify-Hmac-Sha256": "qBvrsZF7RfB1iS6BX6IHqJTp5L911P7intnPeTPsH0I="}
    verify = hipq.ShopifySignature("hush")

    assert verify(request(b'{"id":820982911946154508}', headers)) is True
    refuses(verify, b'{"id":820982911946154509}', headers)


# One row for each verifier: how it is made, and how its partner signs

PARTNERS: dict[str, tuple[Any, Any, str]] = {
    "standard": (hipq.StandardWebhooksSignature, standard_headers, STANDARD_SECRET),
    "slack": (hipq.SlackSignature, slack_headers, SLACK_SECRET),
    "shopify": (hipq.ShopifySignature, lambda body, at: shopify_headers(body), SHOPIFY_SECRET),
    "stripe": (hipq.StripeSignature, stripe_headers, STRIPE_SECRET),
    "github": (hipq.GitHubSignature, lambda body, at: github_headers(body), STRIPE_SECRET),
}
ALL = pytest.mark.parametrize("name", list(PARTNERS))
TIMED = pytest.mark.parametrize("name", ["standard", "slack", "stripe"])


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
@pytest.mark.parametrize("skew", [-300, -1, 0, 1, 300])
def test_a_clock_may_be_off_by_the_tolerance(name: str, skew: int) -> None:
    make, sign, secret = PARTNERS[name]

    assert make(secret)(request(BODY, sign(BODY, NOW + skew))) is True


@TIMED
@pytest.mark.parametrize("skew", [-301, 301, -NOW, 900_000_000_000 - NOW])
def test_an_old_signature_and_one_of_the_future_are_refused(name: str, skew: int) -> None:
    make, sign, secret = PARTNERS[name]

    reason = refuses(make(secret), BODY, sign(BODY, NOW + skew))

    assert f"{-skew} seconds old, and 300 are allowed" in reason


@TIMED
def test_the_tolerance_can_be_chosen(name: str) -> None:
    make, sign, secret = PARTNERS[name]
    verify = make(secret, tolerance=5)

    assert verify(request(BODY, sign(BODY, NOW - 5))) is True
    refuses(verify, BODY, sign(BODY, NOW - 6))
    with pytest.raises(hipq.ConfigurationError, match=f"^{make.__name__}: tolerance 0: give"):
        make(secret, tolerance=0)


@pytest.mark.parametrize("name", ["standard", "slack"])
@pytest.mark.parametrize("time", ["-1", "1e9", f"{NOW}.0", "nan", "soon", "9" * 13, "\u0661\u0667"])
def test_what_is_no_time_is_refused(name: str, time: str) -> None:
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
def test_no_secret_is_in_what_is_printed_or_said(name: str) -> None:
    make, sign, secret = PARTNERS[name]
    verify = make([secret, "whsec_b2xkZXIgc2VjcmV0"])
    shown = f"{verify!r} {verify} {vars(verify)} {refuses(verify, b'', sign(BODY, NOW))}"

    assert secret.removeprefix("whsec_") not in shown
    assert "b2xkZXIgc2VjcmV0" not in shown


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


# Standard Webhooks


def test_one_good_entry_among_several_is_enough() -> None:
    headers = standard_headers(BODY, NOW)
    good = headers["webhook-signature"]
    headers["webhook-signature"] = f"v1a,{good[3:]} v1,Zm9yZ2Vk {good} v2,{good[3:]}"

    assert hipq.StandardWebhooksSignature(STANDARD_SECRET)(request(BODY, headers)) is True


@pytest.mark.parametrize("version", ["v1a", "v2", "V1", ""])
def test_an_entry_of_another_version_is_passed_over(version: str) -> None:
    headers = standard_headers(BODY, NOW)
    headers["webhook-signature"] = f"{version},{headers['webhook-signature'][3:]}"

    reason = refuses(hipq.StandardWebhooksSignature(STANDARD_SECRET), BODY, headers)

    assert reason == "header webhook-signature has no signature v1,…."


def test_the_headers_may_have_another_beginning() -> None:
    verify = hipq.StandardWebhooksSignature(STANDARD_SECRET, headers="svix-")
    headers = standard_headers(BODY, NOW)
    named = {name.replace("webhook-", "svix-"): value for name, value in headers.items()}

    assert verify(request(BODY, named)) is True
    assert refuses(verify, BODY, headers) == "header svix-timestamp is missing."


@pytest.mark.parametrize("secret", [STANDARD_SECRET, STANDARD_SECRET[6:], "whsec_YQ", "YQ=="])
def test_a_secret_is_base64_with_or_without_its_prefix(secret: str) -> None:
    padded = secret + "=" * (-len(secret.removeprefix("whsec_")) % 4)
    headers = standard_headers(BODY, NOW, secret=padded)

    assert hipq.StandardWebhooksSignature(secret)(request(BODY, headers)) is True


@pytest.mark.parametrize("secret", ["whsec_", "whsec_no base64", "whpk_YQ==", "s3cret!", "é", "Q"])
def test_a_secret_that_is_not_base64_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(hipq.ConfigurationError) as caught:
        hipq.StandardWebhooksSignature(secret)

    assert caught.value.__context__ is None
    assert str(caught.value) == (
        "StandardWebhooksSignature: the secret is not 'whsec_' and base64; copy it as the partner "
        "shows it, or give the key itself as bytes."
    )


def test_an_id_that_is_not_ascii_is_refused() -> None:
    headers = standard_headers(BODY, NOW) | {"webhook-id": "é"}

    reason = refuses(hipq.StandardWebhooksSignature(STANDARD_SECRET), BODY, headers)

    assert reason == "header webhook-id has characters that are not ASCII."


# What a message is


def test_the_id_of_a_standard_message_is_its_header() -> None:
    verify = hipq.StandardWebhooksSignature(STANDARD_SECRET)

    assert verify.message_id(request(BODY, standard_headers(BODY, NOW))) == "msg_1"


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
    assert len(verify.message_id(plain)) < 255
