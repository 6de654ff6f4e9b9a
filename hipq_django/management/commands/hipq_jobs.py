"""`manage.py hipq_jobs`: what operators do to jobs and batches, each verb under its own name."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any, ClassVar

from django.core.management.base import CommandError
from django.utils.translation import override

import hipq_django as hipq
from hipq_django.database.transactions import looks_only
from hipq_django.domain.states import NONE
from hipq_django.domain.validation import id_from
from hipq_django.management.instance_command import InstanceCommand, given_moment
from hipq_django.models import Job
from hipq_django.sharding.routing import of_id, of_key

Options = dict[str, Any]

NOTHING_HOLDS_IT = "nothing holds it: a worker executes it, or starts it next."


class Command(InstanceCommand):
    """Each verb is the function of the same name."""

    help = "Explain, cancel, move or requeue jobs; cancel batches."
    takes: ClassVar = {
        "explain": ("--type", "--shard-key"),
        "cancel": ("--type", "--reason", "--descendants", "--shard-key"),
        "run_now": ("--type", "--shard-key"),
        "reschedule": ("--type", "--at", "--shard-key"),
        "reprioritize": ("--type", "--priority", "--shard-key"),
        "requeue": ("--type", "--dependents", "--shard-key"),
        "cancel_batch": ("--reason",),
    }
    kept_as: ClassVar = {"--shard-key": "shard_key"}

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        super().add_arguments(parser)
        parser.add_argument("verb", choices=list(self.takes))
        parser.add_argument("names", nargs="+", metavar="ID", help="Ids of jobs, or of batches.")
        parser.add_argument("--type", help="What stands for ids are keys of jobs of this type.")
        parser.add_argument("--shard-key", metavar="KEY", help="With --type: says in which shard.")
        parser.add_argument("--reason", default="", help="cancel, cancel_batch: why.")
        parser.add_argument(
            "--descendants", action="store_true", help="cancel: all that it has enqueued, too."
        )
        parser.add_argument(
            "--dependents", action="store_true", help="requeue: all that it took down, too."
        )
        parser.add_argument("--at", help="reschedule: when, such as 2026-11-22T00:00Z.")
        parser.add_argument("--priority", type=int, help="reprioritize: lower is sooner.")

    def run(self, options: Options) -> None:
        """Do it to one after the other; stop at the first where it is refused."""
        do: Callable[[str, Options], str] = getattr(self, options["verb"])
        for name in options["names"]:
            self.stdout.write(do(name, options))

    def cancel_batch(self, name: str, options: Options) -> str:
        """Cancel the live jobs of a batch, and `then`."""
        pk = id_from(name)
        if pk is None:
            raise CommandError(f"cancel_batch: {name!r:.100}: give the id of a batch.")
        number = hipq.cancel_batch(pk, options["reason"], instance=self.config.name)
        return f"batch {name}: {number:,} jobs cancelled"

    def cancel(self, name: str, options: Options) -> str:
        """Make a live job final."""
        how = {"reason": options["reason"], "descendants": options["descendants"]}
        return _shown(self._do(hipq.cancel, name, options, **how))

    def requeue(self, name: str, options: Options) -> str:
        """Create a new job from a final one."""
        fresh = self._do(hipq.requeue, name, options, dependents=options["dependents"])
        return f"job {fresh.origin_id}: requeued as {fresh}"

    def run_now(self, name: str, options: Options) -> str:
        """Let a waiting job run."""
        return _shown(self._do(hipq.run_now, name, options))

    def reschedule(self, name: str, options: Options) -> str:
        """Give a waiting job another time."""
        at = given_moment("reschedule", "--at", options["at"])
        return _shown(self._do(hipq.reschedule, name, options, at=at))

    def reprioritize(self, name: str, options: Options) -> str:
        """Give a waiting job another priority."""
        if options["priority"] is None:
            raise CommandError("reprioritize: say which priority, --priority 10.")
        return _shown(self._do(hipq.reprioritize, name, options, priority=options["priority"]))

    def explain(self, name: str, options: Options) -> str:
        """Say why a job does not run."""
        if job_type := options["type"]:
            using = of_key(self.config, job_type, name, options["shard_key"], "explain")[0]
        else:
            using = of_id(self.config.name, id_from(name))
        # In English, as all commands print.
        with override(None), looks_only(using):
            reasons = self._do(hipq.explain, name, options) or [NOTHING_HOLDS_IT]
        return "\n".join(f"{name}: {reason}" for reason in reasons)

    def _do(self, verb: Callable[..., Any], name: str, options: Options, **how: Any) -> Any:
        """Call a verb with the job of a name: an id, or a key of a type."""
        if options["type"]:
            place = {"instance": self.config.name, "shard_key": options["shard_key"]}
            return verb(options["type"], name, **place, **how)
        if id_from(name) is None:
            raise CommandError(
                f"{options['verb']}: instance {self.config.name!r} has no job {name!r:.100}; give "
                "the id of a job, or --type where it is the key of one."
            )
        return verb(hipq.get_job(name, instance=self.config.name), **how)


def _shown(job: Job) -> str:
    return f"{job}: {job.state}" if job.outcome == NONE else f"{job}: {job.outcome}"
