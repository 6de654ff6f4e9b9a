"""What may happen next in the life of jobs, and from which values it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st

from hipq_django.domain.states import NONE
from hipq_django.maintenance import early_answers, recovery
from hipq_django.models import Answer, Job
from tests.job_life.actors import COMMIT, END, Until
from tests.job_life.scripts import LIMIT, PARTS

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., None])

Kind = Answer.Kind

MAX_LIVE_JOBS = 6
MAX_MESSAGES = 3

PICKS = st.integers(0, 11)
"""Which of those that there are just then: so what is drawn never depends on what happened."""
SEATS = st.sampled_from([0, 1])
KEYS = st.sampled_from(["key-0", "key-1", "key-9"])
PAYLOADS = st.sampled_from(["yes", "no"])
MESSAGE_IDS = st.sampled_from([None, None, "message-1", "message-2"])
KINDS = st.sampled_from([Kind.RESPONSE, Kind.RESPONSE, Kind.ERROR])
NAMES = st.sampled_from([*PARTS, None])
MESSAGES = st.tuples(PICKS, KEYS, KINDS, PAYLOADS, NAMES, MESSAGE_IDS)
UNTIL: st.SearchStrategy[Until] = st.sampled_from(
    [END, END, END, END, END, COMMIT, COMMIT, 1, 2, 3, 4, 5, 7]
)
DUTIES = st.sampled_from(
    [
        recovery.time_out_overdue,
        early_answers.match_early,
        recovery.recover_lost,
        early_answers.expire_early,
    ]
)
OPTIONS = st.fixed_dictionaries(
    {
        "throttle_factor": st.sampled_from([1, 0, 2, LIMIT + 2]),
        "priority": st.sampled_from([100, 1]),
        "timeout": st.sampled_from([60, 5]),
        "time_windows": st.sampled_from([[], [], [], ["13:00-15:00"]]),
    }
)


class Moves(list[st.SearchStrategy[tuple[str, dict[str, Any]]]]):
    """What may happen next; what is more likely is there more than once."""

    def move(self, weight: int = 1, **values: st.SearchStrategy[Any]) -> Callable[[Method], Method]:
        """Declare what may happen next, and how often."""

        def declare(method: Method) -> Method:
            chosen = st.tuples(st.just(method.__name__), st.fixed_dictionaries(values))
            self.extend([chosen] * weight)
            return method

        return declare


MOVES = Moves()
move = MOVES.move


def picked(there: Sequence[T], pick: int) -> T:
    """Return one of those that there are."""
    return there[pick % len(there)]


def live_job(job_type: str, key: str | None) -> Job | None:
    """Return the live job with this key."""
    if key is None or key == NONE:
        return None
    jobs = Job.objects.live().select_related("job_type")
    return jobs.filter(job_type__name=job_type, job_key=key).first()
