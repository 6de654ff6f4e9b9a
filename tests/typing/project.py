"""What a project writes, and mistakes in it that type checkers are to find.

Each mistake stands on a line of its own that ends in `# mistake`. Nothing here is ever executed.
"""

# ruff: noqa

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import hipq_django as hipq
from hipq_django import flow

# Job types


@hipq.job_type("charge_card", queue="bank", timeout=60, retry=hipq.Exponential(), unique="live")
def charge_card(job: hipq.Job) -> Any:
    job.report(50, "half")
    key: str = job.job_key
    print(key)
    return hipq.WAIT


@charge_card.on_response
def charged(job: hipq.Job, response: Any) -> Any:
    return response


@charge_card.on_error
def after_error(job: hipq.Job) -> hipq.RetryIn | None:
    return hipq.RetryIn(60)


@hipq.job_type("async_charge")
async def async_charge(job: hipq.Job) -> Any:
    await job.areport(50)


@hipq.job_type("no_job")  # mistake
def no_job() -> Any:
    return None


@hipq.job_type  # mistake
def no_name(job: hipq.Job) -> Any:
    return None


@hipq.job_type("timed", time_out=60)  # mistake
def timed(job: hipq.Job) -> Any:
    return None


@hipq.job_type("retried", retry=3)  # mistake
def retried(job: hipq.Job) -> Any:
    return None


@hipq.job_type("unique", unique="lives")  # mistake
def unique(job: hipq.Job) -> Any:
    return None


policy = hipq.Exponential(max_attempt=3)  # mistake


@charge_card.on_response  # mistake
def takes_no_response(job: hipq.Job) -> Any:
    return None


# Enqueue


def enqueue(tomorrow: datetime) -> None:
    job: hipq.Job = charge_card.enqueue({"amount": 5}, job_key="order-7", priority=1)
    charge_card.enqueue({}, delay=timedelta(hours=1), throttle_factor=Decimal("0.5"))
    charge_card.using(queue="other", after=[job], on="final").enqueue({})
    hipq.enqueue("charge_card", {}, scheduled_run_time=tomorrow, on_conflict="return")
    hipq.enqueue_many([hipq.NewJob("charge_card", {}, job_key="a"), charge_card.new({})])
    state: str = job.state
    print(state)
    charge_card.enqueue({}, jobkey="order-7")  # mistake
    charge_card.enqueue({}, priority="high")  # mistake
    charge_card.enqueue({}, on_conflict="retrun")  # mistake
    charge_card.enqueue({}, delay="1h")  # mistake
    charge_card.using(on="finished")  # mistake
    hipq.enque("charge_card", {})  # mistake
    hipq.NewJob("charge_card", {}, jobkey="a")  # mistake
    number: int = job.state  # mistake
    print(number)


# Tasks


@hipq.task
def send_invoice(invoice_id: int, *, copy_to: list[str] | None = None) -> dict[str, int]:
    return {"sent": invoice_id}


@hipq.task(name="shop.sync", queue="shops", retry=hipq.Fixed(5))
async def sync_stock(shop: str, *, job: hipq.Job = hipq.JOB) -> None:
    await job.aextend(60)


@hipq.task
def merge(name: str, inputs: list[Any] = hipq.INPUTS) -> int:
    return len(inputs)


@hipq.task(timeout="60")  # mistake
def slow(name: str) -> None: ...


def tasks() -> None:
    job: hipq.Job = send_invoice.enqueue(42, copy_to=["a@shop.example"])
    sent: dict[str, int] = send_invoice(42)
    print(sent)
    send_invoice.using(priority=1).enqueue(42)
    hipq.chain(send_invoice.new(1), merge.new("a"))
    with hipq.batch("import", then=merge.new("b")) as batch:
        batch.enqueue_many(send_invoice.new(number) for number in range(3))
    hipq.cancel_batch(batch, "not wanted")
    hipq.get_result(job, timeout=5)
    send_invoice.enqueue()  # mistake
    send_invoice.enqueue("42")  # mistake
    send_invoice.enqueue(42, copyto=[])  # mistake
    send_invoice.enqueue(42, priority=1)  # mistake
    send_invoice.using(prio=1).enqueue(42)  # mistake
    send_invoice.using(priority=1).enqueue("42")  # mistake
    send_invoice.new(invoice=1)  # mistake
    wrong: str = send_invoice(42)  # mistake
    hipq.chain(send_invoice)  # mistake
    print(wrong)


# Verbs


def verbs(job: hipq.Job, tomorrow: datetime) -> None:
    hipq.complete(job, {"ok": True})
    hipq.complete("charge_card", "order-7", {"ok": True}, message_id="m-1")
    hipq.cancel("charge_card", "order-7", "not wanted", descendants=True)
    hipq.reschedule(job, tomorrow)
    charge_card.reprioritize("order-7", 5)
    done: int = hipq.requeue_many(hipq.Job.objects.filter(outcome="failed")).done
    print(done)
    hipq.cancel("charge_card")  # mistake
    hipq.complete("charge_card", 7, {})  # mistake
    hipq.reschedule(job, "tomorrow")  # mistake
    charge_card.reprioritize("order-7", "high")  # mistake
    hipq.requeue_many([job])  # mistake
    job.report("half")  # mistake


async def async_verbs(job: hipq.Job) -> None:
    await charge_card.aenqueue({})
    await sync_stock.aenqueue("berlin")
    fresh: hipq.Job = await hipq.arequeue(job)
    print(fresh)
    await hipq.cancel(job)  # mistake
    hipq.arequeue(job).pk  # mistake
    await sync_stock.aenqueue(7)  # mistake


# Flows


def flows() -> None:
    shop: flow.Node = flow.start("shop.orders", alias="shop", on_conflict="return")
    flow.start("shop.orders", parent=shop, data={"order": [1]}, job={"priority": 5}, run=False)
    flow.start("shop.orders", alais="shop")  # mistake
    flow.start("shop.orders", data=[1])  # mistake
    flow.start("shop.orders", on_conflict="keep")  # mistake
