"""What the scheduler asks of whoever runs its jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hipq_django.scheduler.current_batch import CurrentBatch
    from hipq_django.transitions.values import Claim


class JobRunner(Protocol):
    """Who runs the claims: threads in a worker, the caller itself in a test."""

    batch: CurrentBatch
    """Where the results are delivered."""

    @property
    def backlog(self) -> int:
        """How many claims have not started."""

    def free_slots(self) -> int:
        """Return how many jobs would start at once."""

    def prefetch_slots(self) -> int:
        """Return how many more may be claimed ahead of a free thread."""

    def start(self, claims: Sequence[Claim]) -> None:
        """Run the claims, in their order."""

    def executing(self) -> list[Claim]:
        """Return the claims that have started."""

    def release_stale(self) -> None:
        """Deliver as released the claims that no one is free to start."""
