"""`manage.py demo_shards`: one queue over two databases, one of which is stopped for a while."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from itertools import accumulate
from pathlib import Path
from typing import Any, NoReturn

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connections

import hipq_django as hipq
from example_project.demo.progress import Progress
from example_project.demo.stage import ChildError, Stage, StoppedError
from hipq_django.conf.instances import get_instance
from hipq_django.domain.validation import started
from hipq_django.models import Job
from hipq_django.monitoring.shards import ShardsState, ShardState, look_at_shards
from tests.postgres import PostgresServer

INSTANCE = "sharded"
SHARDS = ("jobs_0", "jobs_1")
QUEUE = "warehouse"
LIMIT = 6
TENANTS = [f"tenant-{number}" for number in range(20)]
PARCELS = 72
SECONDS = 60


class Command(BaseCommand):
    """Starts two servers and four workers, and shows what each database has of the limit."""

    help = "Run the example of shards: one queue in two databases, with one limit for both."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Play the demo; exit code 1 if anything is not as promised."""
        if not settings.SHARDS_FOLDER:
            _begin_anew_with_folder()
        try:
            with servers() as started, Stage() as stage:
                self._play(stage, started)
        except StoppedError as error:
            sys.exit(error.exit_code)
        except (ChildError, DatabaseError, OSError) as error:
            raise CommandError(str(error).strip()) from error

    def _play(self, stage: Stage, servers: dict[str, PostgresServer]) -> None:
        self.progress = Progress(self.stdout)
        self._set_up(stage)
        self._headline(f"{PARCELS} parcels of {len(TENANTS)} tenants, with a limit of {LIMIT}:")
        enqueue_parcels(TENANTS)
        self._watch(stage, "Both databases use the limit.", _is_used_by_both)
        self._watch(stage, "All parcels are packed.", _is_done)
        self._headline("Parcels of one tenant, all in jobs_0, which takes the limit of jobs_1:")
        enqueue_parcels([name for name in TENANTS if hipq.shard_of(name, INSTANCE).number == 0][:1])
        self._watch(stage, "jobs_0 has all of it.", lambda state: _running(state, 0) == LIMIT)
        self._headline("The server of jobs_1 is stopped:")
        connections["jobs_1"].close()
        servers["jobs_1"].stop()
        self._watch(stage, "jobs_0 has packed its parcels.", lambda state: not _left(state, 0))
        self._headline("The server of jobs_1 is started again, and there are parcels for both:")
        servers["jobs_1"].start()
        enqueue_parcels(TENANTS)
        self._watch(stage, "All parcels are packed.", _is_done)
        self._tell()

    def _set_up(self, stage: Stage) -> None:
        self.stdout.write("Making the tables in both databases …")
        for alias in SHARDS:
            call_command("migrate", database=alias, verbosity=0)
        call_command("hipq_shards", "add", instance=INSTANCE, stdout=self.stdout)
        self.stdout.write(f"Starting two workers for each; their logs are in {stage.logs}")
        worker = ("manage.py", "hipq_worker", "--instance", INSTANCE, "--processes", "2")
        for alias in SHARDS:
            stage.start(f"workers of {alias}", *worker, "--shard", alias, "--no-reload")

    def _headline(self, text: str) -> None:
        self.progress.end()
        self.stdout.write(f"\n{text}")

    def _watch(self, stage: Stage, what: str, is_reached: Callable[[ShardsState], bool]) -> None:
        """Show the shards until something is reached; raise `CommandError` if it takes too long."""
        until = time.monotonic() + SECONDS
        while True:
            stage.pause()
            state = look()
            running = _running(state, 0) + _running(state, 1)
            self.progress.show(
                f"  {' · '.join(map(_said, state.shards))} · together {running.normalize():f}"
            )
            if is_reached(state):
                self.progress.end()
                self.stdout.write(f"  {what}")
                return
            if time.monotonic() > until:
                raise CommandError(f"Not reached in {SECONDS} s: {what}.")

    def _tell(self) -> None:
        jobs = [job for alias in SHARDS for job in Job.objects.using(alias).final()]
        packed = sum(job.outcome == Job.Outcome.SUCCEEDED for job in jobs)
        most = most_at_once(jobs)
        self.stdout.write(f"\nParcels packed: {packed} of {3 * PARCELS}")
        self.stdout.write(f"Most at once in both databases: {most} of {LIMIT} allowed")
        if (packed, most) != (3 * PARCELS, LIMIT):
            raise CommandError("That is not as promised.")


def _begin_anew_with_folder() -> NoReturn:
    """Replace this process by one whose settings have two more databases."""
    folder = tempfile.mkdtemp(prefix="hipq-demo-shards-")
    Path(folder).chmod(0o755)  # PostgreSQL is run by another user if this is root
    os.environ["SHARDS_FOLDER"] = folder
    os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 - this command again


@contextmanager
def servers() -> Iterator[dict[str, PostgresServer]]:
    """Run a PostgreSQL server for each shard for as long as the context lasts."""
    folder, started = Path(settings.SHARDS_FOLDER), dict[str, PostgresServer]()
    try:
        for alias in SHARDS:
            (folder / alias).mkdir()
            started[alias] = PostgresServer(folder / alias)
            started[alias].start()
        yield started
    finally:
        connections.close_all()
        for server in started.values():
            server.stop("immediate")
        shutil.rmtree(folder)


def look() -> ShardsState:
    """Return the shards as two looks in a row saw them: they are read one after the other."""
    config = get_instance(INSTANCE)
    before, state = look_at_shards(config), look_at_shards(config)
    for _ in range(20):
        if state == before:
            break
        before, state = state, look_at_shards(config)
    return state


def most_at_once(jobs: Iterable[Job]) -> int:
    """Return how many jobs ran at the same moment, by their own times."""
    steps = [(job.update_time, -1) for job in jobs]
    steps += [(started(job.deadline, job.timeout, job.extended_seconds), 1) for job in jobs]
    return max(accumulate(step for _, step in sorted(steps)), default=0)


def enqueue_parcels(tenants: Sequence[str]) -> None:
    """Enqueue the parcels of these tenants, which SHARD_KEY leads to their databases."""
    jobs = [
        hipq.NewJob("pack", {"tenant": tenants[number % len(tenants)], "parcel": number})
        for number in range(PARCELS)
    ]
    hipq.enqueue_many(jobs, per_shard=True, instance=INSTANCE)


def _running(state: ShardsState, number: int) -> Decimal:
    return sum((queue.running for queue in state.shards[number].queues), Decimal(0))


def _left(state: ShardsState, number: int) -> Decimal:
    return sum((Decimal(q.due) for q in state.shards[number].queues), _running(state, number))


def _is_used_by_both(state: ShardsState) -> bool:
    first, second = _running(state, 0), _running(state, 1)
    return first > 0 < second and first + second == LIMIT


def _is_done(state: ShardsState) -> bool:
    is_whole = not any(shard.problem for shard in state.shards)
    return is_whole and not _left(state, 0) + _left(state, 1)


def _said(state: ShardState) -> str:
    if state.problem:
        return f"{state.problem:<42}"
    [queue] = [queue for queue in state.queues if queue.name == QUEUE]
    share = queue.throttle_limit if queue.share is None else queue.share
    owes = f" and owes {queue.owed.normalize():f}" if queue.owed else ""
    said = f"{queue.due:>3} due, runs {queue.running.normalize():f} of {share.normalize():f}{owes}"
    return f"{state.shard.alias}: {said:<34}"
