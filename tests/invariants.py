"""What must hold of the rows after every step, whatever the steps were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from operator import itemgetter
from typing import Any

from django.db.models import F, QuerySet

from hipq_django.domain import parts
from hipq_django.domain.states import NONE, WAITING, AnswerKind, AnswerStatus, Outcome, Phase, State
from hipq_django.domain.validation import started
from hipq_django.models import Answer, Attempt, Job, Queue

Row = dict[str, Any]
Rows = dict[int, Row]

OF_THE_TYPE = {"type_name": F("job_type__name"), "counts_answers": F("job_type__counted_answers")}


STATUS_MOVES = {
    AnswerStatus.EARLY: {
        AnswerStatus.ACCEPTED,
        AnswerStatus.DUPLICATE,
        AnswerStatus.LATE,
        AnswerStatus.UNMATCHED,
        AnswerStatus.DISCARDED,
    },
    AnswerStatus.ACCEPTED: {AnswerStatus.DISCARDED},
    AnswerStatus.UNMATCHED: {AnswerStatus.ACCEPTED, AnswerStatus.EARLY},  # by hand
}
"""What may still become of an answer; in every other status it stays as it is."""


@dataclass(frozen=True)
class Snapshot:
    """The rows as they stand between two steps."""

    jobs: Rows
    answers: Rows
    attempts: set[tuple[int, int]]
    queues: dict[int, Queue]

    @classmethod
    def take(cls) -> Snapshot:
        """Read all rows, in the order of their ids."""
        return cls(
            jobs=_by_id(Job.objects.annotate(**OF_THE_TYPE)),
            answers=_by_id(Answer.objects.all()),
            attempts=set(Attempt.objects.values_list("job_id", "attempt")),
            queues=Queue.objects.in_bulk(),
        )

    def in_state(self, *states: State) -> list[Row]:
        """Return the jobs in these states."""
        return [job for job in self.jobs.values() if job["state"] in states]

    def load(self, queue: int) -> Decimal:
        """Return the sum of the factors of the queue's running jobs."""
        running = [job for job in self.in_state(State.RUNNING) if job["queue_id"] == queue]
        return sum((job["throttle_factor"] for job in running), Decimal(0))

    def answers_of(self, job: Row, status: AnswerStatus, kind: AnswerKind) -> list[Row]:
        """Return the job's answers of one status and kind, in the order in which they came."""
        wanted = (job["id"], status, kind)
        found = [
            a for a in self.answers.values() if (a["job_id"], a["status"], a["kind"]) == wanted
        ]
        return sorted(found, key=itemgetter("id"))

    def response_to(self, job: Row) -> list[Any]:
        """Return what settles the job, in a list: what was accepted; nothing while parts miss."""
        accepted = self.answers_of(job, AnswerStatus.ACCEPTED, AnswerKind.RESPONSE)
        whole = [answer["payload"] for answer in accepted if answer["part"] == parts.UNNAMED]
        expects, named = job["expects"], [(a["part"], a["payload"]) for a in accepted if a["part"]]
        if whole or not expects or not parts.is_complete(expects, dict(named)):
            return whole
        return [parts.collected(expects, named)]


def _by_id(rows: QuerySet[Any]) -> Rows:
    return {row["id"]: dict(row) for row in rows.order_by("pk").values()}


def check_step(before: Snapshot, after: Snapshot) -> None:
    """Fail unless `after` is sound, and may follow `before`."""
    for rule in RULES:
        rule(after)
    for rule_of_change in RULES_OF_CHANGE:
        rule_of_change(before, after)


# What holds of the rows at any moment


def error_and_outcome_fit_the_state(now: Snapshot) -> None:
    for job in now.jobs.values():
        is_final = job["state"] == State.FINAL
        assert (job["outcome"] != Outcome.NONE) == is_final, job
        has_error = job["error"] != NONE
        wanted = job["state"] in (State.ERROR, State.RETRY)
        if is_final:
            wanted = job["outcome"] != Outcome.SUCCEEDED
        assert has_error == wanted, job


def an_initial_job_is_untried_and_any_other_was_claimed(now: Snapshot) -> None:
    for job in now.jobs.values():
        if job["state"] == State.INITIAL:
            assert job["attempt"] == 0, job
        elif job["state"] != State.FINAL:
            assert job["attempt"] > 0, job


def a_key_has_at_most_one_live_job(now: Snapshot) -> None:
    live = Counter(
        (job["job_type_id"], job["job_key"])
        for job in now.jobs.values()
        if job["state"] != State.FINAL and job["job_key"] != NONE
    )
    assert all(count == 1 for count in live.values()), live


def only_jobs_being_worked_on_have_a_worker(now: Snapshot) -> None:
    for job in now.jobs.values():
        assert job["worker_id"] is None or job["state"] in (State.RUNNING, State.ERROR), job


def the_rank_of_a_waiting_job_fits_its_time_and_priority(now: Snapshot) -> None:
    for job in now.in_state(*WAITING):
        ordering = now.queues[job["queue_id"]].ordering
        assert job["rank"] == ordering.rank(job["scheduled_run_time"], job["priority"]), job


def a_job_in_error_has_its_attempt_written_down(now: Snapshot) -> None:
    for job in now.in_state(State.ERROR):
        assert (job["id"], job["attempt"]) in now.attempts, job


def no_attempt_began_before_its_job_was_due(now: Snapshot) -> None:
    """The deadline, which says when the attempt began, is not that of an earlier one."""
    for job in now.in_state(State.RUNNING):
        start = started(job["deadline"], job["timeout"], job["extended_seconds"])
        assert start >= job["scheduled_run_time"], job


def each_part_of_a_job_has_at_most_one_accepted_response(now: Snapshot) -> None:
    accepted = Counter(
        (answer["job_id"], answer["part"])
        for answer in now.answers.values()
        if (answer["status"], answer["kind"]) == (AnswerStatus.ACCEPTED, AnswerKind.RESPONSE)
    )
    assert all(count == 1 for count in accepted.values()), accepted


def each_attempt_has_at_most_one_accepted_error(now: Snapshot) -> None:
    accepted = Counter(
        (answer["job_id"], answer["attempt"])
        for answer in now.answers.values()
        if (answer["status"], answer["kind"]) == (AnswerStatus.ACCEPTED, AnswerKind.ERROR)
    )
    assert all(count == 1 for count in accepted.values()), accepted


def an_accepted_error_is_in_the_history_of_its_job(now: Snapshot) -> None:
    for answer in now.answers.values():
        if (answer["status"], answer["kind"]) == (AnswerStatus.ACCEPTED, AnswerKind.ERROR):
            assert (answer["job_id"], answer["attempt"]) in now.attempts, answer


def an_answer_that_waits_for_its_job_has_a_job_that_can_still_take_it(now: Snapshot) -> None:
    """One of several waits until the handler has said what it is a part of."""
    for job, answer in _waiting(now):
        assert job["state"] == State.INITIAL or _is_part(answer, job), (answer, job)


def a_job_that_waits_has_counted_the_parts_that_are_there(now: Snapshot) -> None:
    for job, answer in _waiting(now):
        is_waiting = job["state"] == State.RUNNING and job["worker_id"] is None
        if is_waiting and not job["has_pending_answer"] and _is_part(answer, job):
            expects = job["expects"]
            is_expected = isinstance(expects, int) or answer["part"] in expects
            assert not is_expected, (answer, job)


def a_live_job_is_answered_if_an_answer_waits_for_it(now: Snapshot) -> None:
    waited_for = {job["id"] for job, answer in _waiting(now) if not _is_part(answer, job)}
    for job in now.jobs.values():
        is_live = job["state"] != State.FINAL
        is_answered = job["id"] in waited_for or bool(now.response_to(job))
        assert job["has_pending_answer"] == (is_live and is_answered), job


def a_duplicate_repeats_another_answer_to_its_job(now: Snapshot) -> None:
    others = {a["job_id"] for a in now.answers.values() if a["status"] != AnswerStatus.DUPLICATE}
    for answer in now.answers.values():
        assert answer["status"] != AnswerStatus.DUPLICATE or answer["job_id"] in others, answer


def what_was_said_before_is_not_late(now: Snapshot) -> None:
    """It is a duplicate."""
    settling = (AnswerStatus.ACCEPTED, AnswerStatus.DISCARDED)
    said = ("job_id", "attempt", "kind", "part", "payload")
    before = [a for a in now.answers.values() if a["status"] in settling]
    for answer in now.answers.values():
        if answer["status"] == AnswerStatus.LATE:
            same = [a for a in before if all(a[name] == answer[name] for name in said)]
            assert all(a["id"] > answer["id"] for a in same), (answer, same)


def a_late_response_has_a_reason(now: Snapshot) -> None:
    answered = {
        answer["job_id"]
        for answer in now.answers.values()
        if answer["status"] in (AnswerStatus.ACCEPTED, AnswerStatus.DISCARDED, AnswerStatus.EARLY)
    }
    for answer in now.answers.values():
        if (answer["status"], answer["kind"]) == (AnswerStatus.LATE, AnswerKind.RESPONSE):
            job = now.jobs[answer["job_id"]]
            assert job["state"] == State.FINAL or job["id"] in answered, (answer, job)


def _waiting(now: Snapshot) -> Iterator[tuple[Row, Row]]:
    """Yield the answers that wait for a job there is, each behind its job."""
    for answer in now.answers.values():
        if answer["status"] == AnswerStatus.EARLY and answer["job_id"]:
            yield now.jobs[answer["job_id"]], answer


def _is_part(answer: Row, job: Row) -> bool:
    is_one_of_several = answer["part"] or job["counts_answers"] or job["expects"]
    return answer["kind"] == AnswerKind.RESPONSE and bool(is_one_of_several)


RULES = (
    error_and_outcome_fit_the_state,
    an_initial_job_is_untried_and_any_other_was_claimed,
    a_key_has_at_most_one_live_job,
    only_jobs_being_worked_on_have_a_worker,
    the_rank_of_a_waiting_job_fits_its_time_and_priority,
    a_job_in_error_has_its_attempt_written_down,
    no_attempt_began_before_its_job_was_due,
    each_part_of_a_job_has_at_most_one_accepted_response,
    each_attempt_has_at_most_one_accepted_error,
    an_accepted_error_is_in_the_history_of_its_job,
    an_answer_that_waits_for_its_job_has_a_job_that_can_still_take_it,
    a_job_that_waits_has_counted_the_parts_that_are_there,
    a_live_job_is_answered_if_an_answer_waits_for_it,
    a_duplicate_repeats_another_answer_to_its_job,
    what_was_said_before_is_not_late,
    a_late_response_has_a_reason,
)


# What holds between one moment and the next


def only_final_jobs_vanish_and_none_changes(before: Snapshot, after: Snapshot) -> None:
    for pk, job in before.jobs.items():
        if job["state"] == State.FINAL:
            assert after.jobs.get(pk, job) == job
        else:
            assert pk in after.jobs, f"a job that was not final is gone: {job}"


def attempts_only_grow(before: Snapshot, after: Snapshot) -> None:
    for pk, job in after.jobs.items():
        assert job["attempt"] >= before.jobs.get(pk, job)["attempt"], job


def no_request_is_claimed_after_its_response(before: Snapshot, after: Snapshot) -> None:
    """Nobody is asked again what was answered and accepted."""
    for pk, job in after.jobs.items():
        was = before.jobs.get(pk, job)
        if job["attempt"] > was["attempt"] and job["phase"] == Phase.REQUEST:
            assert not before.response_to(was), (was, job)


def no_attempt_fails_while_it_sends_what_was_answered(before: Snapshot, after: Snapshot) -> None:
    """The response goes first: a raise, a timeout or a lost worker does not count any more."""
    for pk, was in before.jobs.items():
        if was["has_pending_answer"] and was["phase"] == Phase.REQUEST:
            assert (pk, was["attempt"]) not in after.attempts, (was, after.jobs.get(pk))


def no_queue_takes_more_than_its_limit(before: Snapshot, after: Snapshot) -> None:
    """A heavier job than the limit may run alone; what runs when the limit is lowered goes on."""
    for queue in after.queues.values():
        load = after.load(queue.pk)
        if not queue.is_limited or load <= queue.throttle_limit:
            continue
        weighing = [job for job in after.in_state(State.RUNNING) if job["throttle_factor"] > 0]
        alone = len([job for job in weighing if job["queue_id"] == queue.pk]) == 1
        assert alone or load <= before.load(queue.pk), f"{load} of {queue.throttle_limit} run"


def an_answer_stays_what_it_became(before: Snapshot, after: Snapshot) -> None:
    for pk, answer in after.answers.items():
        was = before.answers.get(pk)
        if was is None or was["status"] == answer["status"]:
            continue
        assert answer["status"] in STATUS_MOVES.get(was["status"], ()), (was, answer)


def an_accepted_error_is_about_the_present_attempt(before: Snapshot, after: Snapshot) -> None:
    for pk, answer in after.answers.items():
        was = before.answers.get(pk)
        if (answer["status"], answer["kind"]) != (AnswerStatus.ACCEPTED, AnswerKind.ERROR):
            continue
        if (was is None or was["status"] != AnswerStatus.ACCEPTED) and answer[
            "job_id"
        ] in before.jobs:
            present = before.jobs[answer["job_id"]]["attempt"]
            assert answer["attempt"] >= present, (answer, present)


def an_answer_never_changes_its_job(before: Snapshot, after: Snapshot) -> None:
    for pk, answer in after.answers.items():
        was = before.answers.get(pk, answer)
        assert was["job_id"] in (None, answer["job_id"]), (was, answer)


def an_answer_vanishes_with_its_job_or_when_it_waits_for_none(
    before: Snapshot, after: Snapshot
) -> None:
    for pk, was in before.answers.items():
        if pk not in after.answers and was["job_id"] in after.jobs:
            raise AssertionError(f"an answer is gone: {was}")


RULES_OF_CHANGE = (
    only_final_jobs_vanish_and_none_changes,
    attempts_only_grow,
    no_request_is_claimed_after_its_response,
    no_attempt_fails_while_it_sends_what_was_answered,
    no_queue_takes_more_than_its_limit,
    an_answer_stays_what_it_became,
    an_accepted_error_is_about_the_present_attempt,
    an_answer_never_changes_its_job,
    an_answer_vanishes_with_its_job_or_when_it_waits_for_none,
)


# What holds between one moment and the next, if just one step was taken meanwhile


def an_early_answer_saves_the_request(before: Snapshot, after: Snapshot) -> None:
    """Unless an earlier job had its key already, or it may be one of several."""
    used = {(j["job_type_id"], j["job_key"]) for j in before.in_state(State.FINAL)}
    waiting = {
        (answer["job_type"], answer["job_key"])
        for answer in before.answers.values()
        if answer["status"] == AnswerStatus.EARLY and not answer["job_id"] and not answer["part"]
    }
    for pk, job in after.jobs.items():
        was = before.jobs.get(pk, job)
        is_asking = job["state"] == State.RUNNING and job["phase"] in (Phase.REQUEST, Phase.NONE)
        if job["attempt"] == was["attempt"] or not is_asking:
            continue
        is_alone = (job["job_type_id"], job["job_key"]) not in used and not job["counts_answers"]
        key = (job["type_name"], job["job_key"])
        assert not (is_alone and key in waiting), f"asked for what is there: {job}"
