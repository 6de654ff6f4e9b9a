"""The code of job types that does what a test has just said."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import hipq_django as hipq
from hipq_django.models import Job
from tests.declaring import Declare
from tests.noon import MONDAY_NOON

PARTS = ("front", "back")

Ending = Callable[[Job], Any]


# How a handler may end


def return_value(job: Job) -> Any:
    return {"done": job.pk, "attempt": job.attempt}


def wait(job: Job) -> Any:
    return WAITS.get(job.job_type.name, hipq.WAIT)


def wait_for_front(job: Job) -> Any:
    del job
    return hipq.WAIT_FOR("front")


def wait_for_two(job: Job) -> Any:
    del job
    return hipq.WAIT_FOR(2)


def raise_error(job: Job) -> Any:
    del job
    raise OSError("the partner is down")


def snooze(job: Job) -> Any:
    del job
    raise hipq.Snooze(30)


def return_no_json(job: Job) -> Any:
    return {job}


def scribble_and_snooze(job: Job) -> Any:
    """The copy is the handler's own: what it writes there is nobody's business."""
    job.priority, job.time_windows, job.job_key = 1, ["01:00-02:00"], "scribble"
    raise hipq.Snooze(30)


def set_a_key_and_wait(job: Job) -> Any:
    job.set_key("key-9")
    return wait(job)


def usual(job: Job) -> Any:
    """Stand for what a handler of the type does where nothing goes wrong."""
    raise AssertionError(f"the test says what is usual for {job}")


ENDINGS: tuple[Ending, ...] = (
    *[usual] * 5,
    *[return_value] * 5,
    wait_for_front,
    wait_for_two,
    raise_error,
    snooze,
    return_no_json,
    scribble_and_snooze,
    set_a_key_and_wait,
)


# What a retry handler may do


def retry_at_once(job: Job) -> Any:
    del job
    return hipq.RetryIn(0)


def send_again(job: Job) -> Any:
    del job
    return hipq.RetryIn(0, resend=True)


def retry_later(job: Job) -> Any:
    del job
    return hipq.RetryAt(MONDAY_NOON + timedelta(minutes=2))


def give_up(job: Job) -> Any:
    del job
    return hipq.GiveUp()


def decide_nothing(job: Job) -> Any:
    del job


def decide_nonsense(job: Job) -> Any:
    del job
    return "later"


def change_and_retry(job: Job) -> Any:
    job.job_data, job.priority, job.throttle_factor = {"changed": True}, 7, Decimal(2)
    return hipq.RetryIn(5)


def take_a_key_and_retry(job: Job) -> Any:
    job.job_key = "key-9"
    return hipq.RetryIn(0)


DECISIONS: tuple[Ending, ...] = (
    retry_at_once,
    *[send_again] * 3,
    retry_later,
    give_up,
    decide_nothing,
    decide_nonsense,
    raise_error,
    change_and_retry,
    take_a_key_and_retry,
)


# The job types

UNOWNED, NARROW = "free", "narrow"
LIMIT = 3
"""The limit of the narrow queue."""
PERSISTENT = hipq.Fixed(0, max_attempts=4)
TYPES: dict[str, dict[str, Any]] = {
    "simple": {"queue": UNOWNED},
    "persistent": {"queue": NARROW, "retry": PERSISTENT},
    "decided": {"queue": UNOWNED, "on_error": True},
    "handled": {"queue": NARROW, "on_response": True},
    "handled_once": {"queue": UNOWNED, "on_response": True, "retry": hipq.Never()},
    "handled_persistently": {"queue": UNOWNED, "on_response": True, "retry": PERSISTENT},
    "handled_and_decided": {"queue": NARROW, "on_response": True, "on_error": True},
    "parts": {"queue": UNOWNED, "retry": PERSISTENT},
    "parts_handled": {"queue": NARROW, "on_response": True, "on_error": True},
    "counted": {
        "queue": UNOWNED,
        "counted_answers": True,
        "on_response": True,
        "retry": PERSISTENT,
    },
}
WAITS = {
    "parts": hipq.WAIT_FOR(*PARTS),
    "parts_handled": hipq.WAIT_FOR(*PARTS),
    "counted": hipq.WAIT_FOR(2),
}
"""What the handlers wait for whose jobs expect several answers."""


class Script(threading.local):
    """What the next handler in this thread does."""

    ending: Ending = staticmethod(return_value)
    decision: Ending = staticmethod(give_up)


class Scripted:
    """The code of all job types, and a record of what it was called for."""

    def __init__(self, declare: Declare) -> None:
        self.script = Script()
        self.sent: set[tuple[int, int]] = set()
        """Job and attempt of each request."""
        self.waiting: set[tuple[int, int]] = set()
        """Those whose handler wants to wait for the answer."""
        for name, options in TYPES.items():
            self._declare(declare, name, dict(options))

    def forget(self) -> None:
        """Forget what was called."""
        self.sent.clear()
        self.waiting.clear()

    def _declare(self, declare: Declare, name: str, options: dict[str, Any]) -> None:
        is_handled, is_decided = (options.pop(on, False) for on in ("on_response", "on_error"))
        declared = declare(name, **options)(self._request)
        if is_handled:
            declared.on_response(self._response)
        if is_decided:
            declared.on_error(self._retry)

    def _request(self, job: Job) -> Any:
        self.sent.add((job.pk, job.attempt))
        value = self.script.ending(job)
        if value is hipq.WAIT or isinstance(value, hipq.WAIT_FOR):
            self.waiting.add((job.pk, job.attempt))
        return value

    def _response(self, job: Job, response: Any) -> Any:
        value = self.script.ending(job)
        return response if isinstance(value, dict) else value

    def _retry(self, job: Job) -> Any:
        return self.script.decision(job)
