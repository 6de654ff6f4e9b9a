"""Jobs and answers before they are rows. Pure."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, fields
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from hipq_django.domain.parts import UNNAMED
from hipq_django.domain.states import NONE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from hipq_django.domain.windows import TimeWindow
    from hipq_django.models import Answer


# Not frozen: that makes it three times as dear, and they are made by the ten thousand.
@dataclass(slots=True)
class NewJob:
    """One job for `enqueue_many`; what is not given comes from the job type.

    `job_key` identifies the answer, `scheduled_run_time` is an aware datetime, or `delay` says in
    how many seconds, or what timedelta, from now; `timeout` is in seconds, `time_windows` a list of
    text or `TimeWindow`.
    """

    job_type: str
    job_data: Any = field(default_factory=dict, repr=False)
    _: KW_ONLY
    job_key: str | None = None
    scheduled_run_time: datetime | None = None
    delay: float | timedelta | None = None
    priority: int | None = None
    throttle_factor: float | Decimal | None = None
    timeout: float | None = None
    time_windows: Sequence[str | TimeWindow] | None = None
    queue: str | None = None


JOB_OPTIONS = tuple(f.name for f in fields(NewJob))[2:]


@dataclass(frozen=True, slots=True)
class NewAnswer:
    """One answer for `receive_many`, and what a source's map function returns.

    It is a response, None too, unless an `error` is given, text or JSON. `message_id` is the
    sender's own id of the message, `part` the name of the part that is answered, where the job
    waits for several.
    """

    job_type: str
    job_key: str
    _: KW_ONLY
    response: Any = field(default=None, repr=False)
    error: Any = field(default=None, repr=False)
    message_id: str | None = None
    part: str | None = None


@dataclass(frozen=True, slots=True)
class JobDefaults:
    """The values that a job of this type gets where its own are not given."""

    timeout: float = 86_400.0
    priority: int = 100
    throttle_factor: Decimal = Decimal(1)
    time_windows: tuple[TimeWindow, ...] = ()
    time_zone: str = ""


@dataclass(frozen=True, slots=True)
class IncomingAnswer:
    """An answer before it is stored, all of it checked.

    `attempt` is the attempt that a signed callback URL was made for, None where the answer is
    matched by its key. `problem` says why a malformed message is no answer, `part` which of several
    answers it is.
    """

    instance: str
    job_type: str
    job_key: str
    kind: str
    payload: Any = field(repr=False)
    message_id: str = NONE
    attempt: int | None = None
    problem: str = NONE
    part: str = UNNAMED


def as_incoming(answer: Answer) -> IncomingAnswer:
    """Return a stored answer as the message that it was."""
    return IncomingAnswer(
        answer.instance, answer.job_type, answer.job_key, answer.kind, answer.payload,
        answer.message_id, part=answer.part,
    )  # fmt: skip
