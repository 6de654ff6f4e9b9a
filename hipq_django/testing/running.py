"""Runs jobs by the real scheduler, in the test's own process, transaction and connection."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from math import inf
from typing import Any

from django.db import connections
from django.test.testcases import logger  # type: ignore[attr-defined]  # of the stubs

from hipq_django.api.enqueueing import watched
from hipq_django.conf.instances import InstanceSettings, get_instance, on_shard
from hipq_django.conf.rules import DEFAULT
from hipq_django.database import clock
from hipq_django.database.clock import steady
from hipq_django.database.transactions import is_aborted
from hipq_django.dependencies.unholding import Sweep, unhold_after
from hipq_django.domain.ordering import MAX_RANK
from hipq_django.domain.redaction import as_shown
from hipq_django.domain.serialization import error_of
from hipq_django.domain.states import NONE, Phase
from hipq_django.exceptions import HipqError, InvalidJobError, nearest_name
from hipq_django.job_types.registry import declared_queues, find_declared
from hipq_django.maintenance import early_answers, recovery, reranking
from hipq_django.models import Job, JobType, Queue, Worker, catalog
from hipq_django.models.masking import shown
from hipq_django.monitoring.reasons import explain
from hipq_django.scheduler import companions
from hipq_django.scheduler.batch import BatchScheduler
from hipq_django.scheduler.context import PAGE_SIZE, KnownTypes
from hipq_django.scheduler.current_batch import CurrentBatch
from hipq_django.scheduler.executor import execute, undone
from hipq_django.schedules import declared
from hipq_django.schedules.firing import Firing
from hipq_django.sharding.map import shards
from hipq_django.testing import partners
from hipq_django.transitions.values import Claim, Decided, Failed, Released, Result

TIMEOUT = 60.0
"""For how many seconds handlers are started that are due at one moment, unless the test says."""

HEARTBEAT_SECONDS = 86_400
"""There is no heartbeat, and a debugger may keep the test and its transaction open for long."""

MOST_NOTES = 20


class BrokenTransactionError(HipqError):
    """The code of a job went on after an error of the database, in the transaction of a test."""


class NotDrainedError(HipqError, TimeoutError):
    """Jobs were still due when the time of `run_due_jobs` was over; they stay as they are."""


class InlineRunner:
    """Runs each claim at once, in the caller's thread and on its connection."""

    backlog = 0

    def __init__(self, *, raise_errors: bool, slots: int) -> None:
        self.ran = 0
        self.started: list[int] = []
        """The ids of jobs whose results the next pass writes."""
        self.raised: list[BaseException] = []
        self.batch = CurrentBatch()
        self.until = inf
        """When nothing is started any more, by the steady clock, which tests cannot freeze."""
        self.left: Claim | None = None
        """The first claim that was not started, because the time was over."""
        self._raise_errors = raise_errors
        self._slots = slots

    def free_slots(self) -> int:
        """Return how many jobs would start at once: one, to be followed by what it makes due."""
        return self._slots

    def prefetch_slots(self) -> int:
        """Return that none is claimed ahead."""
        return 0

    def start(self, claims: Sequence[Claim]) -> None:
        """Run the claims; put back those for which no time is left."""
        for claim in claims:
            if steady() >= self.until:
                self.left = self.left or claim
                self.batch.deliver(Released(claim, "the time of the test was over"))
                continue
            self.ran += claim.phase is not Phase.DECISION
            self.started.append(claim.id)
            self._deliver(_executed(claim))

    def _deliver(self, result: Result) -> None:
        """Take a result. No frame below a handler may know it, or its exception lives on."""
        raised = result.exception if isinstance(result, Failed | Decided) else None
        if self._raise_errors and raised is not None:
            self.raised.append(as_shown(result.claim, raised))
        self.batch.deliver(result)

    def executing(self) -> list[Claim]:
        """Return that nothing runs beside the test."""
        return []

    def release_stale(self) -> None:
        """Nothing waits for a thread."""


def _executed(claim: Claim) -> Result:
    """Execute a claim; what its code breaks in the transaction of the test is rolled back.

    In production no transaction is open around a job's code, so a statement that fails undoes
    nothing but itself.
    """
    opened = [c for c in connections.all(initialized_only=True) if c.in_atomic_block]
    savepoints = [(connection, connection.savepoint()) for connection in opened]
    result = execute(claim)
    try:
        broken = [c.alias for c, savepoint in savepoints if _is_rolled_back(c, savepoint)]
        if not broken or isinstance(result, Failed | Decided):
            return result
        return undone(claim, _broken(claim, broken[0]))
    finally:
        del result  # as in `_deliver`: its exception knows this frame


def _is_rolled_back(connection: Any, savepoint: str | None) -> bool:
    """End a savepoint; return whether what came after it had to be rolled back."""
    if connection.closed_in_transaction:
        return False
    broken = connection.needs_rollback or is_aborted(connection)
    connection.needs_rollback = False
    end = connection.savepoint_rollback if broken else connection.savepoint_commit
    end(savepoint)
    return bool(broken)


def _broken(claim: Claim, alias: str) -> BrokenTransactionError:
    """Return what is wrong with code that went on after an error of the database."""
    return BrokenTransactionError(
        f"job type {claim.snapshot.job_type.name!r} went on after an error of database "
        f"{alias!r}, and what it had written was rolled back: the test is one transaction. "
        "Catch such an error around `with transaction.atomic():`, which is right everywhere."
    )


class OnlyJob(KnownTypes):
    """Lets a scheduler see one job as runnable, and no other, not even of the same type.

    It names no type, so that no job is claimed without a look at it.
    """

    def __init__(self, worker: Worker, job: Job) -> None:
        super().__init__(worker)
        self._id = job.pk
        row = JobType.objects.using(job.using).get(pk=job.job_type_id)
        self._job_type = row if find_declared(row.instance, row.name, row.kind) else None

    def read(self) -> None:
        """Read no others."""

    def runnable(self, queue: Queue, jobs: Iterable[Job]) -> list[Job]:
        """Return the job, if it is among these and this process has code for it."""
        if self._job_type is None:
            return []
        found = [job for job in jobs if job.pk == self._id]
        for job in found:
            job.queue, job.job_type = queue, self._job_type
        return found


class Session:
    """A worker for the time of a `with` block; what handlers raised is raised at the end.

    In a sharded instance it is that of the shard that is worked on.
    """

    def __init__(
        self,
        queues: Sequence[str] = (),
        *,
        instance: str = DEFAULT,
        raise_errors: bool = True,
        only: Job | None = None,
        timeout: float = inf,
        verb: str = "run_due_jobs",
    ) -> None:
        self._verb = verb
        self.config = get_instance(instance)
        self.firing = Firing(self.config)
        # With one slot the job could be overlooked behind others that are not to run.
        slots = 1 if only is None else PAGE_SIZE
        self.runner = InlineRunner(raise_errors=raise_errors, slots=slots)
        self._queues = list(queues)
        self._only = only
        self._timeout = timeout
        self._worker: Worker | None = None

    def __enter__(self) -> Session:
        catalog.sync(self.config.name, creates=False)  # a test needs few of the rows
        _check_queues(self._queues, self.config)
        self._worker = Worker.objects.using(self.config.database).create(
            instance=self.config.name,
            name="run_due_jobs",
            heartbeat_seconds=HEARTBEAT_SECONDS,
            queues=self._queues,
            heartbeat_time=clock.now(self.config.database),
        )
        if self.config.database == self.config.shards[0]:
            declared.sync(self.config.name)
        self.duties = self._make_duties()
        self.scheduler = BatchScheduler(self._worker, self.runner)
        if self._only is not None:
            self.scheduler.types = OnlyJob(self._worker, self._only)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._worker is not None:
            _deregister(self._worker)
        if kind is None and self.runner.raised:
            raise _with_notes(self._verb, self.runner.raised)

    def run_due(self, *, commit: bool = False) -> None:
        """Run what is due, and what becomes due by that; partners answer meanwhile.

        With `commit` also by what waits for the commit of the test's transaction. Raise
        `NotDrainedError` where that does not end in time.
        """
        self.scheduler.forget_pauses()  # they are real time, which a test does not wait for
        self.runner.until, self.runner.left = steady() + self._timeout, None
        moved, found = self._move(commit=commit), self._run_jobs()
        while (moved or found) and self.runner.left is None:
            moved = self._move(commit=commit)
            found = bool(moved) and self._run_jobs()
        if self.runner.left is not None:
            raise self._not_drained(self.runner.left)

    def _make_duties(self) -> dict[str, Callable[[], int]]:
        """Return the duties of `WorkerProcess` that concern jobs, in its order.

        Those that look for other processes are left out, and each does all that there is to do.
        """
        config = self.config
        return {
            "time_out_overdue": partial(recovery.time_out_overdue, config),
            "match_early": partial(early_answers.match_early, config),
            "fire_schedules": self.firing.run,
            "unhold_jobs": Sweep(config).run_all,
            "sweep_companions": partial(companions.sweep, config, companions.steps_left_alone()),
            "continue_ranking": self._continue_ranking,
        }

    def _move(self, *, commit: bool) -> int:
        """Do what the commit would, where that is wanted, and once what a worker does at intervals.

        Partners answer, too. Return how much was done.
        """
        called = call_what_waits_for_commit(self.config.database) if commit else 0
        answered = partners.answer_due(self.config)  # first, because some are early
        return called + answered + sum(do() for do in self.duties.values())

    def _continue_ranking(self) -> int:
        """Do so unless the last probe has seen that there is nothing to rank."""
        seen = self.scheduler.rotation.queues.values()
        if seen and all(queue.is_ranked for queue in seen):
            return 0
        return reranking.continue_ranking(self.config)

    def _run_jobs(self) -> bool:
        """Make passes until nothing is left; return whether one has found something."""
        found = False
        while True:
            written, self.runner.started = self.runner.started, []
            self.scheduler.run_once()
            # A commit, which a test may never make, would do it.
            others_go_on = bool(written) and unhold_after(written, self.config.database)
            if self.scheduler.found_nothing:
                return found
            found = True
            if self.scheduler.is_done and not others_go_on:
                return found
            if self.runner.left is not None:
                self.scheduler.persist_batch()
                return found

    def _not_drained(self, left: Claim) -> NotDrainedError:
        error = NotDrainedError(
            f"after {self._timeout:g} seconds, in which {self.runner.ran:,} handlers ran, jobs "
            f"were still due, the next one of type {left.snapshot.job_type.name!r}. Does it "
            "enqueue itself, or is it tried again, without end? If it only takes long, give a "
            "larger timeout."
        )
        _add_notes(self._verb, error, "a", self.runner.raised)
        return error


class Sessions:
    """A worker for each shard of an instance, mostly one, for the time of a `with` block.

    What handlers of all of them raised is raised at the end.
    """

    def __init__(self, queues: Sequence[str] = (), *, instance: str = DEFAULT, **of_each: Any):
        self._instance = instance
        self._runs = False
        raised: list[BaseException] = []
        self.each: list[Session] = []
        for shard in shards(instance):
            with on_shard(instance, shard.alias):
                self.each.append(Session(queues, instance=instance, **of_each))
            self.each[-1].runner.raised = raised

    def __enter__(self) -> Sessions:
        with ExitStack() as opened:
            for session in self._one_by_one():
                opened.enter_context(session)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._opened.__exit__(*error)

    @property
    def ran(self) -> int:
        """How many handlers ran."""
        return sum(session.runner.ran for session in self.each)

    def run_due(self, *, commit: bool = False) -> None:
        """Run what is due in each, and what becomes due by that; see `Session.run_due`."""
        before = -1
        while before != self.ran:
            before = self.ran
            for session in self._one_by_one():
                session.run_due(commit=commit)
            if len(self.each) == 1:
                return

    def run_new(self, jobs: Sequence[Job]) -> None:
        """Run new jobs, unless they are enqueued by a job that runs: then they follow it."""
        if self._runs or jobs[0].queue.instance != self._instance:
            return
        self._runs = True
        try:
            self.run_due()
        finally:
            self._runs = False

    def _one_by_one(self) -> Iterator[Session]:
        """Yield each, while its shard is worked on."""
        for session in self.each:
            with on_shard(self._instance, session.config.database):
                yield session


def run_due_jobs(
    *queues: str,
    instance: str = DEFAULT,
    raise_errors: bool = True,
    commit: bool = False,
    timeout: float = TIMEOUT,
) -> int:
    """Run all due jobs, and those that become due by that; return how many handlers ran.

    The real scheduler runs in this process, one job at a time, with its order, limits, throttlers
    and windows; jobs past their timeout time out, schedules that are due make their jobs, and
    partners answer. It works inside `TestCase`. Jobs that are scheduled for later, held back, or
    waiting for an answer stay as they are.

    What a handler of any kind raised is raised at the end, the first exception with the others as
    notes, also if the job is to be tried again. An error that another system answered, a timeout
    and `Snooze` are not raised, for no code is wrong. With `raise_errors=False` the jobs just fail,
    as for a worker. With `commit=True` what waits for the commit of the test's transaction is
    called as well, signals for example, and the jobs that it enqueues run. Raise `NotDrainedError`
    if jobs are still due after `timeout` seconds of real time: one may enqueue itself without end.
    """
    opened = Sessions(queues, instance=instance, raise_errors=raise_errors, timeout=timeout)
    with opened as sessions:
        sessions.run_due(commit=commit)
    return sessions.ran


drain = run_due_jobs


@contextmanager
def immediate(
    *queues: str, instance: str = DEFAULT, raise_errors: bool = True, timeout: float = TIMEOUT
) -> Iterator[None]:
    """Run each job that is due before `enqueue` returns, for a block, as `run_due_jobs` would.

    It runs in the transaction of its caller, which it cannot do in production: there a job sees
    what was committed with it, its caller goes on before it, and a job whose caller rolls back
    never runs. What handlers raise is raised at the end of the block. `enqueue` raises
    `NotDrainedError` if jobs are still due after `timeout` seconds.
    """
    sessions = Sessions(
        queues, instance=instance, raise_errors=raise_errors, timeout=timeout, verb="immediate"
    )
    with ExitStack() as opened:
        opened.enter_context(sessions)
        opened.enter_context(watched(sessions.run_new))
        yield


def run_job(job: Job, *, raise_errors: bool = True) -> Job:
    """Run one job now, whatever its time, its windows and the other jobs; return it as it is then.

    What is decided after a failure belongs to it. Limits, throttlers and pauses hold: raise
    `AssertionError`, which says what holds the job, if it did not run.
    """
    using = job.using
    rows = Job.objects.using(using).filter(pk=job.pk)
    rows.waiting().update(
        scheduled_run_time=clock.now(using), time_windows=[], rank=-MAX_RANK, hold_time=None
    )
    name, instance = job.queue.name, job.queue.instance
    with ExitStack() as opened:
        opened.enter_context(on_shard(instance, using))
        session = Session(
            [name], instance=instance, raise_errors=raise_errors, only=job, verb="run_job"
        )
        opened.enter_context(session)
        while not session.runner.ran and session.scheduler.run_once():
            pass
        while rows.in_error().exists() and session.scheduler.run_once():
            pass
        session.scheduler.persist_batch()
    job.refresh_from_db()
    if not session.runner.ran:
        raise AssertionError(f"{job} did not run: {told(job)}")
    return job


def told(job: Job) -> str:
    """Return what an operator would be told of a job; the test itself is the worker."""
    reasons = "; ".join(reason.text for reason in explain(job) if reason.code != "no_worker")
    error = "" if job.error == NONE else f"Its error: {shown(job, job.error)}"
    state = f"it is {job.state}, {job.outcome}.".replace(f", {NONE}", "")
    return " ".join(filter(None, [state, reasons, error]))


def call_what_waits_for_commit(using: str, besides: Collection[Callable[[], object]] = ()) -> int:
    """Call what the current transaction would call after its commit, which a test never makes.

    What is called waits no more; the callbacks `besides` wait on. Return how many were called.
    """
    connection, called, kept = connections[using], 0, {id(callback) for callback in besides}
    while connection.in_atomic_block:
        waiting = connection.run_on_commit
        due: list[Any] = [entry for entry in waiting if id(entry[1]) not in kept]
        connection.run_on_commit = [entry for entry in waiting if id(entry[1]) in kept]
        if not due:
            break
        called += len(due)
        for _, callback, is_robust in due:
            _call(callback, is_robust=is_robust)
    return called


def _call(callback: Callable[[], object], *, is_robust: bool) -> None:
    """Call as Django does after a commit: what a robust callback raises is logged."""
    try:
        callback()
    except Exception:
        if not is_robust:
            raise
        logger.exception("Error calling %r in on_commit()", callback)


def _check_queues(names: Sequence[str], config: InstanceSettings) -> None:
    """Raise `InvalidJobError` for a queue that nothing declares and that does not exist.

    Not where STRICT is False, as for names of job types.
    """
    if not names or config.strict is False:
        return
    known = {*declared_queues(config.name)}
    for shard in shards(config.name):
        rows = Queue.objects.using(shard.alias).filter(instance=config.name)
        known.update(rows.values_list("name", flat=True))
    for name in names:
        if name not in known:
            raise InvalidJobError(
                f"there is no queue {name!r:.100}{nearest_name(str(name), known)} "
                "Correct the name, add it to QUEUES, or set STRICT to False."
            )


def _with_notes(verb: str, raised: Sequence[BaseException]) -> BaseException:
    """Return the first exception of handlers; it names the others."""
    first, *others = raised
    _add_notes(verb, first, "another", others)
    first.add_note(
        f"{verb}: a handler raised this; all that was to run has run. To look at failed jobs, call "
        f"{verb}(raise_errors=False); to read the log, use caplog or assertLogs('hipq_django')."
    )
    return first


def _add_notes(
    verb: str, error: BaseException, which: str, raised: Iterable[BaseException]
) -> None:
    """Let an exception name others; those that say the same once."""
    for said in list(dict.fromkeys(map(error_of, raised)))[:MOST_NOTES]:
        error.add_note(f"{verb}: {which} handler raised {said}")


def _deregister(worker: Worker) -> None:
    """Delete the worker's row, unless an error has left it the owner of jobs."""
    worker.state = Worker.State.STOPPED
    worker.save(using=worker.using, update_fields=["state"])
    if not worker.jobs.exists():
        worker.delete(using=worker.using)
