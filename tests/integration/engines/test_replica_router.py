"""A project whose router sends reads to a replica: nothing of ours is read there.

Nor does it matter whether it knows the database of an instance.

The tests of this file go through everything once. `HIPQ_TEST_ROUTER=replica` runs all others so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from pytest_django import Settings

import hipq_django as hipq
from hipq_django import flow
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock
from hipq_django.flow import testing
from hipq_django.maintenance import recovery, reranking
from hipq_django.models import Job, Queue, Worker
from tests.declaring import Declare
from tests.router import REPLICA
from tests.running import run_due_jobs

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.django_db(databases=["default", "other"], transaction=True),
]

INSTANCES = {"ReplicaRouter": "default", "PrimaryRouter": "other"}
"""The instance that is used under each router."""

READ_ONLY = {
    "postgresql": {"options": "-c default_transaction_read_only=on"},
    "sqlite": {"init_command": "PRAGMA query_only=ON"},
}


@pytest.fixture(autouse=True, params=INSTANCES)
def router(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> str:
    databases = connections.configure_settings({"default": {}, "replica": dict(REPLICA)})
    monkeypatch.setitem(connections.settings, "replica", databases["replica"])
    name: str = request.param
    settings.DATABASE_ROUTERS = [f"tests.router.{name}"]
    return name


@pytest.fixture
def instance(router: str, declare: Declare) -> str:
    """An instance that has job types of all kinds."""
    name = INSTANCES[router]
    parts = {"credit", "stock"}
    declare("send", instance=name, retry=hipq.Fixed(0, max_attempts=2))(lambda job: hipq.WAIT)
    declare("handled", instance=name)(lambda job: hipq.WAIT).on_response(lambda job, answer: answer)
    declare("several", instance=name)(lambda job: hipq.WAIT_FOR(*parts))
    declare("keyed", instance=name)(lambda job: job.set_key("bank-77") and hipq.WAIT)
    declare("seeing", instance=name)(
        lambda job: [job.queue.name, job.job_type.name, job.answers_so_far]
    )
    return name


def fresh(job: Job) -> Job:
    return Job.objects.using(job.using).get(pk=job.pk)


def sent(instance: str, name: str, key: str, **options: Any) -> Job:
    """A job that waits for its answer."""
    job = hipq.enqueue(name, job_key=key, instance=instance, **options)
    run_due_jobs(instance=instance)
    return job


def test_the_router_sends_what_names_no_alias_to_the_replica() -> None:
    """So that the other tests can fail: `figures` is code of ours, and counts what it is given."""
    from hipq_django.monitoring.counts import capped_count

    with pytest.raises(Exception, match="ENGINE"):
        capped_count(Job.objects.all())


def test_jobs_are_enqueued_and_answered(instance: str) -> None:
    one = sent(instance, "send", "k1")
    two = sent(instance, "handled", "k2")
    three = sent(instance, "several", "k3")
    four = sent(instance, "keyed", "k4")

    hipq.progress("send", "k1", 50, "half of it", instance=instance)
    hipq.extend("send", "k1", 60, instance=instance)
    hipq.complete("send", "k1", "yes", instance=instance)
    hipq.complete("handled", "k2", "yes", instance=instance)
    hipq.complete("several", "k3", "A", part="credit", instance=instance)
    hipq.complete("several", "k3", "B", part="stock", instance=instance)
    hipq.receive_many([hipq.NewAnswer("keyed", "bank-77", response="yes")], instance=instance)
    run_due_jobs(instance=instance)

    assert [fresh(job).outcome for job in (one, two, three, four)] == ["succeeded"] * 4


def test_operators_move_jobs(instance: str) -> None:
    later = clock.now(get_instance(instance).database).replace(year=2100)
    job = hipq.enqueue("seeing", instance=instance, scheduled_run_time=later, job_key="k")

    assert hipq.explain(job)
    hipq.run_now(job)
    run_due_jobs(instance=instance)
    assert fresh(job).result == [job.queue.name, "seeing", {}]
    again = hipq.requeue(fresh(job))
    same = hipq.enqueue("seeing", job_key="k", on_conflict="return", instance=instance)
    instead = hipq.enqueue("seeing", job_key="k", on_conflict="replace", instance=instance)
    hipq.cancel(instead)
    hipq.enqueue_many([hipq.NewJob("seeing", job_key="k")], instance=instance)

    assert (same, fresh(again).outcome, fresh(instead).outcome) == (again, *["cancelled"] * 2)


@pytest.fixture
def standby(instance: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The alias of a replica of the instance's database, which can be read."""
    primary = connections[get_instance(instance).database]
    options = READ_ONLY[primary.vendor]
    settings = primary.settings_dict | {"OPTIONS": primary.settings_dict["OPTIONS"] | options}
    monkeypatch.setitem(connections.settings, "standby", settings)
    connections["standby"].connect()
    yield "standby"
    connections["standby"].close()
    del connections["standby"]


def test_nodes_that_were_read_from_a_replica_are_moved(instance: str, standby: str) -> None:
    @flow.component("t.read_elsewhere", instance=instance)
    def twice(number: int) -> int:
        return number * 2

    parent = flow.start("t.read_elsewhere", instance=instance, alias="elsewhere", run=False)
    child = parent.spawn("child", "t.read_elsewhere", run=False)

    def read(node: flow.Node) -> flow.Node:
        return flow.Node.objects.using(standby).get(pk=node.pk)

    read(child).state.set(seen=True)
    read(child).aliases.add("child")
    read(child).inputs["number"].write(2)
    read(child).outputs["out"].connect(read(parent).inputs["number"])
    testing.drain(instance=instance)
    above: Any = read(child).parent
    assert read(parent).child("child") == above.children["child"] == child
    assert [read(parent).outputs["out"].read(), child.state.get("seen")] == [8, True]
    assert read(child).info["component"] == "t.read_elsewhere"
    assert [reason.code for reason in flow.explain(read(child))] == ["no_messages"]

    above.disown("child")
    read(parent).adopt(read(child), "again")
    read(parent).terminate(recursive=True)
    testing.drain(instance=instance)
    assert read(parent).delete()
    assert not child.exists()


def test_jobs_that_were_read_from_a_replica_are_moved(instance: str, standby: str) -> None:
    def read(job: Job, *related: str) -> Job:
        jobs = Job.objects.using(standby)
        return (jobs.select_related(*related) if related else jobs).get(pk=job.pk)

    later = clock.now(get_instance(instance).database).replace(year=2100)
    jobs = [hipq.enqueue("seeing", instance=instance, scheduled_run_time=later) for _ in range(3)]
    answered = sent(instance, "send", "k1")

    hipq.reprioritize(read(jobs[0]), 5)
    hipq.run_now(read(jobs[0], "queue"))
    hipq.cancel(read(jobs[1]), instance=instance)
    again = hipq.requeue(read(jobs[1], "queue", "job_type"))
    hipq.progress(read(answered), 50)
    hipq.complete(read(answered), "yes")

    assert fresh(jobs[0]).priority == 5
    assert fresh(jobs[0]).scheduled_run_time < later
    assert [fresh(jobs[1]).outcome, fresh(answered).result] == ["cancelled", "yes"]
    assert again.using == answered.using
    assert hipq.explain(read(jobs[2]))


def test_a_worker_recovers_ranks_and_prunes(instance: str) -> None:
    config, out = get_instance(instance), StringIO()
    hipq.enqueue("seeing", instance=instance)
    Worker.objects.using(config.database).create(
        instance=instance, name="gone", heartbeat_time=clock.now(config.database).replace(year=2000)
    )
    Queue.objects.using(config.database).update(order="priority")

    recovery.recover_lost(config)
    while reranking.continue_ranking(config):
        pass
    call_command("hipq_worker", "--until-idle", instance=instance, threads=2, verbosity=0)
    for command in ("hipq_status", "hipq_doctor"):
        with suppress(SystemExit):  # the doctor's findings
            call_command(command, instance=instance, stdout=out)
    call_command("hipq_prune", instance=instance, days=0, stdout=out)

    assert not Job.objects.using(config.database).exists()
