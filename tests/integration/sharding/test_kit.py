"""The test kit goes through all shards of an instance."""

from __future__ import annotations

import pytest

import hipq_django as hipq
from hipq_django import testing
from hipq_django.models import Job
from tests.declaring import Declare
from tests.integration.sharding.conftest import Configure

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(databases=["default", "other"], transaction=True),
]

HERE, THERE = "tenant-7", "tenant-1"


@pytest.fixture
def made(shards: None, declare: Declare) -> list[str]:
    """What jobs of type "relay" were run for; each enqueues the next one elsewhere."""
    ran: list[str] = []

    @declare("relay")
    def relay(job: Job) -> None:
        ran.append(job.using)
        if job.job_data["left"]:
            key = HERE if job.using == "other" else THERE
            hipq.enqueue("relay", {"left": job.job_data["left"] - 1}, shard_key=key)

    return ran


def test_jobs_of_all_shards_run_until_none_is_left(made: list[str]) -> None:
    hipq.enqueue("relay", {"left": 3}, shard_key=THERE)

    assert len(testing.enqueued("relay")) == 1
    assert testing.run_due_jobs() == 4
    assert made == ["other", "default"] * 2
    assert testing.enqueued("relay") == []


def test_they_run_in_time_and_at_once(made: list[str]) -> None:
    hipq.enqueue("relay", {"left": 1}, shard_key=THERE, delay=30)
    assert testing.run_for(minutes=1) == 2

    with testing.immediate():
        hipq.enqueue("relay", {"left": 1}, shard_key=HERE)
    assert made == ["other", "default", "default", "other"]
    testing.reset()

    job = hipq.enqueue("relay", {"left": 0}, shard_key=THERE)
    assert testing.run_job(job).outcome == "succeeded"


def test_what_handlers_of_all_shards_raise_is_told_at_the_end(
    shards: None, declare: Declare
) -> None:
    declare("fail", retry=hipq.Never())(lambda job: 1 / 0)
    hipq.enqueue_many([hipq.NewJob("fail", shard_key=key) for key in (HERE, THERE)], per_shard=True)

    with pytest.raises(ZeroDivisionError) as raised:
        testing.run_due_jobs()

    assert any("another handler raised" in note for note in raised.value.__notes__)


@pytest.mark.parametrize("is_early", [False, True])
def test_partners_answer_in_each_shard(
    shards: None, configure: Configure, declare: Declare, *, is_early: bool
) -> None:
    configure(SHARD_KEY="tenant")
    declare("ask_bank")(lambda job: hipq.WAIT)
    partner = testing.partner("ask_bank", 5)
    if is_early:
        partner.early()
    data = [{"tenant": HERE}, {"tenant": THERE}, {}]
    jobs = [hipq.enqueue("ask_bank", each, job_key=f"k-{n}") for n, each in enumerate(data)]

    with testing.captured_signals() as sent:
        testing.run_due_jobs()
    testing.reset()

    assert [testing.assert_finished(job).result for job in jobs] == [5] * 3
    assert [each.name for each in sent].count("job_finished") == 3
