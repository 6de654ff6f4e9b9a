"""What is enqueued: jobs, each with what it is to do and how it has to end. Pure but for chance."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

SUCCEEDS = ("succeeded",)
FAILS = ("failed",)
MAY_FAIL = ("succeeded", "failed")
CANCELLABLE = ("succeeded", "cancelled")
LONG = 600.0
"""A timeout that no cell lasts for, in seconds."""
BANK_TIMEOUT = 4.0
TOMORROW = 1_800.0
"""So far ahead are jobs that must not start during the cell, in seconds."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """One job: what is given to `enqueue`, and what must come of it."""

    job_type: str
    data: dict[str, Any] = field(default_factory=dict)
    ends: tuple[str, ...] = SUCCEEDS
    delay: float = 0.0
    weight: int = 1
    timeout: float = LONG
    is_keyed: bool = False
    """Whether the job has a `job_key`; else only its data names it."""
    cancel_after: float | None = None
    is_answered_before: bool = False
    is_rolled_back: bool = False
    runs: int = 1
    """How often its handler begins where no fault makes it run again."""

    @property
    def waits(self) -> bool:
        """Whether its time comes only after the cell."""
        return self.delay >= TOMORROW


def quick(chance: Random) -> Order:
    """Return a job of the queue without a limit: most return at once."""
    makers = {
        _plain: 55,
        _receipt: 12,
        _raising: 10,
        _later: 8,
        _never: 5,
        _cancelled: 5,
        _rolled_back: 2,
        _hopeless: 2,
        _tomorrow: 1,
    }
    [maker] = chance.choices(list(makers), list(makers.values()))
    return maker(chance)


def _plain(chance: Random) -> Order:
    return Order(job_type="plain", is_keyed=chance.random() < 0.3)


def _receipt(_: Random) -> Order:
    return Order(job_type="receipt")


def _raising(chance: Random) -> Order:
    fails = chance.randint(1, 2)
    return Order(job_type="raising", data={"fails": fails}, runs=fails + 1)


def _later(chance: Random) -> Order:
    return Order(job_type="plain", delay=chance.uniform(0.5, 3))


def _never(_: Random) -> Order:
    return Order(job_type="never")


def _cancelled(chance: Random) -> Order:
    delay, after = chance.uniform(1, 3), chance.uniform(0, 2)
    return Order(job_type="plain", delay=delay, cancel_after=after, ends=CANCELLABLE)


def _rolled_back(_: Random) -> Order:
    return Order(job_type="plain", is_rolled_back=True)


def _hopeless(_: Random) -> Order:
    return Order(job_type="hopeless", ends=FAILS, runs=3)


def _tomorrow(_: Random) -> Order:
    return Order(job_type="plain", delay=TOMORROW)


def slow(chance: Random) -> Order:
    """Return a job that takes about a second."""
    seconds = chance.uniform(0.2, 1.5)
    if chance.random() < 0.1:
        after = chance.uniform(0, 1)
        return Order(
            job_type="slow", data={"seconds": seconds}, cancel_after=after, ends=CANCELLABLE
        )
    return Order(job_type="slow", data={"seconds": seconds})


def limited(chance: Random) -> Order:
    """Return a job of the queue with an exact limit, of a weight of its own."""
    data = {"seconds": chance.uniform(0.02, 0.06)}
    return Order(job_type="limited", data=data, weight=chance.randint(1, 3))


def rated(_: Random) -> Order:
    """Return a job of the queue with a RateLimit."""
    return Order(job_type="rated")


def tenant(chance: Random) -> Order:
    """Return a job of the queue with a KeyLimit."""
    name = chance.choice("ABCD")
    return Order(job_type="tenant", data={"tenant": name, "seconds": chance.uniform(0.05, 0.15)})


def pausing(_: Random) -> Order:
    """Return a job of the queue that is paused again and again."""
    return Order(job_type="pausing")


def payment(chance: Random) -> Order:
    """Return a job that waits for the bank's answer, and what the bank will do."""
    [mode] = chance.choices(
        ["answers", "answers twice", "says no at first", "is silent at first", "answers before"],
        [60, 12, 10, 10, 8],
    )
    job_type = "payment" if chance.random() < 0.6 else "payment_checked"
    cancelled = mode == "answers" and chance.random() < 0.1
    runs = {"says no at first": 2, "is silent at first": 2, "answers before": 0}.get(mode, 1)
    return Order(
        job_type=job_type,
        data={"bank": mode, "delay": chance.uniform(0, 0.8)},
        weight=chance.randint(1, 2),
        timeout=BANK_TIMEOUT if mode == "is silent at first" else LONG,
        is_keyed=True,
        is_answered_before=mode == "answers before",
        cancel_after=chance.uniform(0, 1) if cancelled else None,
        ends=CANCELLABLE if cancelled else SUCCEEDS,
        runs=runs,
    )


@dataclass(frozen=True)
class Stream:
    """Orders of one kind, so many per second."""

    name: str
    per_second: float
    make: Callable[[Random], Order]


EVERYDAY = (
    Stream("quick", 40, quick),
    Stream("slow", 3, slow),
    Stream("limited", 20, limited),
    Stream("bank", 10, payment),
    Stream("rated", 5.5, rated),
    Stream("tenants", 6, tenant),
    Stream("pausing", 3, pausing),
)


# What single cells add


DEATHS = ("SIGKILL", "exit 0", "exit 1")


def bystanders(_: Random) -> list[Order]:
    """Return a job for each way to kill one's process, and some that work beside them."""
    killers = [
        Order(job_type="killer", data={"how": how, "seconds": 0.5}, ends=FAILS, runs=3)
        for how in DEATHS
    ]
    return [*killers, *[Order(job_type="bystander", data={"seconds": 1.5}) for _ in range(9)]]


def burst(_: Random) -> list[Order]:
    """Return quick jobs, and slow ones among them that hold threads of who claims ahead."""
    quick_ones = [Order(job_type="plain") for _ in range(300)]
    slow_ones = [Order(job_type="slow_among_quick", data={"seconds": 3}) for _ in range(8)]
    return [*quick_ones, *slow_ones, *quick_ones, *slow_ones, *quick_ones]


HELD_SECONDS = 3.0
"""How long each job takes that holds a thread while the server is away."""


def held(_: Random) -> list[Order]:
    """Return quick jobs, then enough slow ones for the threads of all workers, and quick ones."""
    quick_ones = [Order(job_type="plain") for _ in range(300)]
    data = {"seconds": HELD_SECONDS}
    slow_ones = [Order(job_type="slow_among_quick", data=data) for _ in range(40)]
    return [*quick_ones, *slow_ones, *quick_ones]


def storm(_: Random) -> list[Order]:
    """Return three thousand jobs that fail whenever they are tried."""
    return [Order(job_type="storming", ends=FAILS, runs=3) for _ in range(3_000)]


def slow_among_quick(_: Random) -> list[Order]:
    """Return some slow jobs behind and before many quick ones that time out soon."""
    quick_ones = [Order(job_type="plain", timeout=5) for _ in range(300)]
    slow_ones = [Order(job_type="slow_among_quick", data={"seconds": 7}) for _ in range(10)]
    return [*quick_ones, *slow_ones, *quick_ones]


def bulky(_: Random) -> list[Order]:
    """Return jobs whose results are too large to be written together, and one for itself."""
    sizes = [3_000_000] * 100 + [270_000_000]
    return [Order(job_type="bulky", data={"bytes": size}, ends=MAY_FAIL) for size in sizes]


MISCHIEF = ("KeyboardInterrupt", "SystemExit", "bad text", "bad snooze", "open transaction")


def mischief(_: Random) -> list[Order]:
    """Return a job for each way in which a handler misbehaves; twice, so that threads meet it."""
    return [
        Order(job_type="mischief", data={"how": how}, ends=MAY_FAIL)
        for how in MISCHIEF
        for _ in range(2)
    ]
