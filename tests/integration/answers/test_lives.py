"""What becomes of a job and its answers, whatever the order in which things happen to them.

Each line is a life: its steps, how the job ends, and the status of each answer in the order in
which they came. T16 and T17.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

import pytest
import time_machine

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock
from hipq_django.maintenance import early_answers, recovery
from hipq_django.models import Answer, Job
from tests.declaring import Declare
from tests.factories import AnswerFactory
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

BOTH = {"front": "F", "back": "B"}
AGAIN = hipq.Fixed(seconds=60, max_attempts=9)


class World:
    """One job type, the newest job of its key, and all who have to do with it."""

    def __init__(self, declare: Declare, time: time_machine.Traveller, **options: Any) -> None:
        self.time, self.asked, self.known = time, 0, list[Any]()
        self.meanwhile = list[str]()
        self.returned: Any = hipq.WAIT
        self.workers = list[HandWorker]()
        decides, handles = options.pop("decides", None), options.pop("handles", None)
        self.type = declare("ask_it", timeout=600, **options)(self.ask)
        if handles:
            self.type.on_response(handles)
        if decides:
            self.type.on_error(decides)

    def ask(self, job: Job) -> Any:
        self.asked += 1
        self.known.append(job.answers_so_far)
        steps, self.meanwhile = self.meanwhile, []
        for step in steps:
            self.do(step)
        return self.returned

    def do(self, step: str) -> None:
        """Do a step: the word is that of a method, and what follows are its arguments."""
        name, *words = step.split()
        options = dict(word.split("=") for word in words if "=" in word)
        getattr(self, name)(*(word for word in words if "=" not in word), **options)

    # The job

    def enqueue(self, how: str = "") -> None:
        later = clock.now("default") + timedelta(hours=1)
        options: dict[str, dict[str, Any]] = {
            "later": {"scheduled_run_time": later},
            "closed": {"time_windows": ["sat 05:00-07:00"]},
            "follows": {"after": [hipq.enqueue("echo", scheduled_run_time=later)] if how else []},
        }
        self.type.enqueue(job_key="k", **options.get(how, {}))

    def wants(self, *parts: str) -> None:
        """Let the handler return `WAIT_FOR`, with a number or names."""
        one, *_ = parts
        self.returned = hipq.WAIT_FOR(int(one)) if one.isdigit() else hipq.WAIT_FOR(*parts)

    def waits(self) -> None:
        self.returned = hipq.WAIT

    def returns(self, value: str) -> None:
        self.returned = value

    def raises(self) -> None:
        raise OSError("connection reset")

    def while_asking(self, *step: str, **options: str) -> None:
        """Let something happen while the handler executes next."""
        self.meanwhile.append(" ".join([*step, *(f"{k}={v}" for k, v in options.items())]))

    def cancel(self) -> None:
        hipq.cancel(self.job)

    @property
    def job(self) -> Job:
        return Job.objects.filter(job_key="k").latest("pk")

    # Workers and time

    def run(self) -> None:
        run_due_jobs()

    def claim(self) -> None:
        self.workers.append(HandWorker())
        self.workers[-1].run_pass()

    def save(self) -> None:
        """Let the last claim be executed, and its result written."""
        self.workers[-1].execute()
        self.workers[-1].save()

    def lose(self) -> None:
        self.workers[-1].die()
        recovery.recover_lost(get_instance())

    def wait(self, seconds: str) -> None:
        self.time.shift(int(seconds))

    def timeout(self) -> None:
        self.time.shift(601)
        recovery.time_out_overdue(get_instance())

    def match(self) -> None:
        early_answers.match_early(get_instance())

    def expire(self) -> None:
        early_answers.expire_early(get_instance())

    # Answers

    def answer(self, response: str, key: str = "k", **options: str) -> None:
        hipq.complete("ask_it", key, response, **options)

    def error(self, text: str, **options: str) -> None:
        hipq.fail("ask_it", "k", text, **options)

    def unseen(self, response: str, **options: str) -> None:
        """Let an answer be stored that the claim could not see, nor its sender the job."""
        AnswerFactory.create(job_type="ask_it", job_key="k", payload=response, **options)


class Life(NamedTuple):
    steps: str
    end: tuple[Any, ...]
    """State or outcome, and the result or error."""
    statuses: str
    options: dict[str, Any] = {}
    asked: int | None = None
    """How often the handler was called."""


def ok(result: Any) -> tuple[Any, ...]:
    return "succeeded", result


WAITS = ("running", "NONE")
RETRIES = {"retry": AGAIN}
DECIDES = {"decides": lambda job: hipq.RetryIn(60)}


def breaks_once(job: Job, response: Any) -> Any:
    if job.attempt == 1:
        raise OSError("unreadable")
    return response


def after_a_timeout(job: Job) -> Any:
    return hipq.RetryIn(600) if "Timeout" in str(job.error) else hipq.GiveUp()


OF_ONE_ANSWER = {
    # Before the job has begun
    "before the job": Life("answer paid; enqueue; run", ok("paid"), "accepted", asked=0),
    "an error before the job": Life(
        "error no; enqueue; run", ("failed", "no"), "accepted", asked=0
    ),
    "an early error is used up by one attempt": Life(
        "error busy; enqueue; run; wait 60; run", WAITS, "accepted", RETRIES, asked=1
    ),
    "to another key": Life("answer paid key=other; enqueue; run", WAITS, "early"),
    "two before the job": Life("answer 1; answer 2; enqueue; run", ok("1"), "accepted duplicate"),
    "not seen by the claim": Life("enqueue; run; unseen paid; match", ok("paid"), "accepted"),
    "thrice before the claim": Life(
        "enqueue; answer 1; answer 1; answer 2; run", ok("1"), "accepted duplicate late"
    ),
    "to a job of the future": Life("enqueue later; answer 1; run", ok("1"), "accepted", asked=0),
    "a window guards the request": Life(
        "enqueue closed; answer 1; run", ok("1"), "accepted", asked=0
    ),
    "not given up while its job waits for its window": Life(
        "answer 1; enqueue closed; match; wait 86401; expire; wait 322200; run",
        ok("1"), "accepted", asked=0,
    ),
    "it follows others": Life(
        "answer 1; enqueue follows; run; wait 3601; run", ok("1"), "accepted", asked=0
    ),
    "it follows others that are not over": Life(
        "answer 1; enqueue follows; run", ("initial", "NONE"), "early", asked=0
    ),
    "a response after an early error": Life(
        "enqueue; error busy; run; answer paid", ok("paid"), "accepted accepted", RETRIES
    ),
    "the job ended by itself": Life(
        "returns done; enqueue; run; unseen paid; match", ok("done"), "late"
    ),
    # To a job that waits
    "twice": Life("enqueue; run; answer 1; answer 1; run", ok("1"), "accepted duplicate"),
    "others after the first": Life(
        "enqueue; run; answer 1; answer 2; error 3", ok("1"), "accepted late late"
    ),
    "a message is known by its id": Life(
        "enqueue; run; answer 1 message_id=m; answer 2 message_id=m", ok("1"), "accepted"
    ),
    "an error": Life("enqueue; run; error no; run", ("failed", "no"), "accepted"),
    "an error again and again": Life(
        "enqueue; run; error no; error no; run; error no; run",
        ("retry", "no"), "accepted duplicate duplicate", RETRIES,
    ),
    "another error of one attempt": Life(
        "enqueue; run; error no; error really; run; error never",
        ("retry", "no"), "accepted late late", DECIDES,
    ),
    "the same error of the next attempt": Life(
        "enqueue; run; error no; run; wait 60; run; error no; run",
        ("retry", "no"), "accepted accepted", RETRIES,
    ),
    # While the handler executes
    "while it asks": Life("while_asking answer 1; enqueue; run", ok("1"), "accepted"),
    "while it asks, and then it returns": Life(
        "while_asking answer 1; returns x; enqueue; run", ok("1"), "accepted"
    ),
    "while it asks, and then it raises": Life(
        "while_asking answer 1; while_asking raises; enqueue; run", ok("1"), "accepted"
    ),
    "an error while it asks": Life(
        "while_asking error no; enqueue; run", ("retry", "no"), "accepted", RETRIES
    ),
    "between claim and start": Life("enqueue; claim; answer 1; save", ok("1"), "accepted"),
    # In error and in retry
    "in error": Life(
        "enqueue; run; error no; answer 1; run", ok("1"), "accepted accepted", DECIDES
    ),
    "while its retry handler decides": Life(
        "enqueue; run; error no; claim; answer 1; save", ok("1"), "accepted accepted", DECIDES
    ),
    "while a retry is due": Life(
        "enqueue; run; error no; run; answer 1; wait 600; run",
        ok("1"), "accepted accepted", RETRIES, asked=1,
    ),
    "an error replaces what was guessed": Life(
        "while_asking raises; enqueue; run; error no; run", ("retry", "no"), "accepted", RETRIES
    ),
    "an error after the timeout": Life(
        "enqueue; run; timeout; error no; error never; run",
        ("failed", "no"), "accepted late", {"decides": after_a_timeout},
    ),
    "an error while the retry after a timeout is due": Life(
        "enqueue; run; timeout; run; error no; run",
        ("failed", "no"), "accepted", {"decides": after_a_timeout},
    ),
    "an error while the timeout is decided about": Life(
        "enqueue; run; timeout; claim; error no; save; run",
        ("failed", "no"), "accepted", {"decides": after_a_timeout},
    ),
    "a response after the timeout and an error": Life(
        "enqueue; run; timeout; error no; answer 1",
        ok("1"), "accepted accepted", {"decides": after_a_timeout},
    ),
    # Too late
    "after a cancel": Life(
        "enqueue; run; cancel; answer 1", ("cancelled", "Cancelled"), "late"
    ),
    "yesterday's": Life(
        "enqueue; run; cancel; answer 1; enqueue; run; match", WAITS, "late"
    ),
    "today's": Life("enqueue; run; cancel; enqueue; run; answer 1", ok("1"), "accepted"),
    "early, cancelled before the claim": Life(
        "enqueue; answer 1; cancel; wait 172800; expire", ("cancelled", "Cancelled"), "late"
    ),
}  # fmt: skip

HANDLES = {"handles": lambda job, response: [response]}
RESENDS = {"handles": breaks_once, "decides": lambda job: hipq.RetryIn(0, resend=True)}
OF_A_RESPONSE_HANDLER = {
    "before the job": Life("answer 1; enqueue; run", ok(["1"]), "accepted", HANDLES, asked=0),
    "a worker handles it": Life("enqueue; run; answer 1; run", ok(["1"]), "accepted", HANDLES),
    "the handler needs no answer": Life("returns x; enqueue; run", ok("x"), "", HANDLES),
    "while it asks": Life("while_asking answer 1; enqueue; run", ok(["1"]), "accepted", HANDLES),
    "while it asks, and then it returns": Life(
        "while_asking answer 1; returns x; enqueue; run", ok(["1"]), "accepted", HANDLES
    ),
    "while it asks, and then it raises": Life(
        "while_asking answer 1; while_asking raises; enqueue; run",
        ok(["1"]), "accepted", HANDLES,
    ),
    "it raises": Life(
        "enqueue; run; answer 1; run", ("failed", "OSError: unreadable"), "accepted",
        {"handles": breaks_once},
    ),
    "it raises, and runs again without a second request": Life(
        "enqueue; run; answer 1; run; wait 60; run", ok("1"), "accepted",
        {"handles": breaks_once, "retry": AGAIN}, asked=1,
    ),
    "while it is tried again": Life(
        "enqueue; run; answer 1; run; answer 2; answer 1", ("retry", "OSError: unreadable"),
        "accepted late duplicate", {"handles": breaks_once, "retry": AGAIN},
    ),
    "the request is sent again": Life(
        "enqueue; run; answer 1; run; answer 1; run", ok("1"), "discarded accepted", RESENDS,
        asked=2,
    ),
    "while a retry is due": Life(
        "enqueue; run; error no; run; answer 1; run", ok(["1"]), "accepted accepted",
        {**HANDLES, **RETRIES}, asked=1,
    ),
    "in error": Life(
        "enqueue; run; error no; answer 1; run", ok(["1"]), "accepted accepted",
        {**HANDLES, **DECIDES}, asked=1,
    ),
    "accepted while the handler executes, then the timeout": Life(
        "enqueue; claim; answer 1; timeout; save; run", ok(["1"]), "accepted",
        {**HANDLES, "decides": lambda job: hipq.GiveUp()},
    ),
    "accepted, then the worker is lost": Life(
        "enqueue; claim; answer 1; lose; run", ok(["1"]), "accepted",
        {**HANDLES, "retry": hipq.Never()},
    ),
    "cancelled while it is handled": Life(
        "enqueue; run; answer 1; claim; cancel; save", ("cancelled", "Cancelled"), "accepted",
        HANDLES,
    ),
}  # fmt: skip

F, B = "answer F part=front", "answer B part=back"
ASK = "wants front back; enqueue; run"
OF_PARTS = {
    "both": Life(f"{ASK}; {B}; {F}; run", ok(BOTH), "accepted accepted"),
    "one before the job": Life(f"{F}; {ASK}; {B}; run", ok(BOTH), "accepted accepted"),
    "one before the claim": Life(
        f"wants front back; enqueue; {F}; run; {B}; run", ok(BOTH), "accepted accepted", asked=1
    ),
    "both while it asks": Life(
        f"while_asking {B}; while_asking {F}; {ASK}", ok(BOTH), "accepted accepted"
    ),
    "one not seen by the claim": Life(
        f"{ASK}; {F}; unseen B part=back; match; run", ok(BOTH), "accepted accepted"
    ),
    "again": Life(
        f"{ASK}; {F}; {F}; answer X part=front; {B}; run; {B}; answer X part=back",
        ok(BOTH), "accepted duplicate late accepted duplicate late",
    ),
    "again before the job": Life(
        f"{F}; answer X part=front; {F}; {B}; {ASK}",
        ok(BOTH), "accepted late duplicate accepted", asked=1,
    ),
    "one that is not wanted": Life(
        f"while_asking answer S part=side; {ASK}; answer T part=top; answer whole",
        WAITS, "unmatched unmatched unmatched",
    ),
    "of a job that waits for one answer": Life(
        f"enqueue; run; {F}; answer whole; run", ok("whole"), "unmatched accepted"
    ),
    "of a job that needs none": Life(
        f"while_asking {F}; returns x; enqueue; run; expire", ok("x"), "late"
    ),
    "the whole while it asks": Life(
        f"while_asking answer whole; {ASK}", ok("whole"), "accepted"
    ),
    "the whole repeats no part": Life(
        f"{ASK}; answer same part=front; answer same", WAITS, "accepted unmatched"
    ),
    "cancelled": Life(
        f"{ASK}; {F}; cancel; {B}", ("cancelled", "Cancelled"), "accepted late"
    ),
    "a lost worker loses none": Life(
        f"wants front back; enqueue; claim; {F}; lose; run; wait 60; run; {B}; run",
        ok(BOTH), "accepted accepted", RETRIES, asked=1,
    ),
    "an error of one fails the attempt": Life(
        f"{ASK}; {F}; error no part=back; error no part=back; run; wait 60; run; {B}; run",
        ok(BOTH), "accepted accepted duplicate accepted", RETRIES, asked=2,
    ),
    "an early error fails the first attempt": Life(
        f"{F}; error no part=back; {ASK}; wait 60; run; {B}; run",
        ok(BOTH), "accepted accepted accepted", RETRIES, asked=1,
    ),
    "a retry keeps them": Life(
        f"{ASK}; {F}; timeout; run; wait 60; run; {B}; run", ok(BOTH), "accepted accepted", RETRIES
    ),
    "a retry may want the missing ones": Life(
        f"{ASK}; {F}; timeout; run; wants back; wait 60; run; {B}; run",
        ok(BOTH), "accepted accepted", RETRIES,
    ),
    "a retry may wait for one answer": Life(
        f"{ASK}; {F}; timeout; run; waits; wait 60; run; answer whole; run",
        ok("whole"), "accepted accepted", RETRIES,
    ),
    "the whole again, whatever its id": Life(
        f"{ASK}; timeout; run; while_asking answer whole; wait 60; run; answer whole message_id=m",
        ok("whole"), "accepted duplicate", RETRIES,
    ),
    "a retry wants what is in": Life(
        f"{ASK}; {F}; error no part=back; run; wants front; wait 60; run",
        ok({"front": "F"}), "accepted accepted", RETRIES,
    ),
    "the last while a retry is due": Life(
        f"{ASK}; {F}; timeout; run; {B}; run", ok(BOTH), "accepted accepted", RETRIES, asked=1
    ),
    "the first while a retry is due": Life(
        f"{ASK}; timeout; run; {F}; wait 60; run; {B}; run",
        ok(BOTH), "accepted accepted", RETRIES, asked=2,
    ),
    "one before the handler failed": Life(
        f"while_asking {F}; while_asking raises; {ASK}; wait 60; run; {B}; run",
        ok(BOTH), "accepted accepted", RETRIES, asked=2,
    ),
    "the response handler runs again on all": Life(
        f"{ASK}; {F}; {B}; run; wait 60; run", ok(BOTH), "accepted accepted",
        {"handles": breaks_once, "retry": AGAIN}, asked=1,
    ),
    "the request is sent again": Life(
        f"{ASK}; {F}; {B}; run; {F}; {B}; run", ok(BOTH),
        "discarded discarded accepted accepted", RESENDS, asked=2,
    ),
}  # fmt: skip

COUNTS = {"counted_answers": True}
THREE = "wants 3; enqueue; run"
OF_COUNTED = {
    "three": Life(
        f"{THREE}; answer b; answer a; answer c; run; answer d",
        ok(["b", "a", "c"]), "accepted accepted accepted late", COUNTS,
    ),
    "before the job": Life(
        f"answer b; answer a; {THREE}; answer c; run",
        ok(["b", "a", "c"]), "accepted accepted accepted", COUNTS,
    ),
    "too many while it asks": Life(
        "; ".join(f"while_asking answer {n}" for n in range(4)) + f"; {THREE}",
        ok(["0", "1", "2"]), "accepted accepted accepted late", COUNTS,
    ),
    "equal ones": Life(f"{THREE}; answer 1; answer 1", WAITS, "accepted duplicate", COUNTS),
    "equal ones with ids": Life(
        f"answer 1 message_id=a; {THREE}; answer 1 message_id=b; answer 1 message_id=c; run",
        ok(["1", "1", "1"]), "accepted accepted accepted", COUNTS,
    ),
    "with names": Life(
        f"{THREE}; answer 1 part=a; answer 1 part=a; answer 1 part=b; answer 1 part=c; run",
        ok(["1", "1", "1"]), "accepted duplicate accepted accepted", COUNTS,
    ),
    "a retry wants as many as are in": Life(
        "wants 2; enqueue; run; answer 1; error no; run; wants 1; wait 60; run",
        ok(["1"]), "accepted accepted", {**COUNTS, **RETRIES},
    ),
    "the request is sent again": Life(
        "wants 2; enqueue; run; answer 1; answer 2; run; answer 3; answer 4; run",
        ok(["3", "4"]), "discarded discarded accepted accepted", {**COUNTS, **RESENDS},
    ),
}  # fmt: skip

LIVES = {
    f"{about}: {name}": life
    for about, lives in (
        ("one", OF_ONE_ANSWER),
        ("handled", OF_A_RESPONSE_HANDLER),
        ("parts", OF_PARTS),
        ("counted", OF_COUNTED),
    )
    for name, life in lives.items()
}


def complete_by_many(job_type: str, key: str, response: Any, **options: Any) -> None:
    """Like `complete`, as a consumer does it."""
    hipq.receive_many([hipq.NewAnswer(job_type, key, response=response, **options)])


@pytest.mark.parametrize("name", LIVES)
@pytest.mark.parametrize("road", ["alone", pytest.param("many", marks=pytest.mark.nightly)])
def test_a_life(
    name: str,
    road: str,
    declare: Declare,
    frozen_time: time_machine.Traveller,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if road == "many":
        monkeypatch.setattr(hipq, "complete", complete_by_many)
    life = LIVES[name]
    world = World(declare, frozen_time, **life.options)

    for step in life.steps.split("; "):
        world.do(step)

    job = world.job
    has_ended = job.outcome if job.is_final else job.state
    answers = Answer.objects.order_by("pk").values_list("status", flat=True)
    assert (has_ended, job.result if job.outcome == "succeeded" else job.error) == life.end
    assert " ".join(answers) == life.statuses
    assert life.asked in (None, world.asked)
