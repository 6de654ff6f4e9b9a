"""What flows add to `hipq_prune`, `hipq_status` and `hipq_doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.db.models import Count, Exists, F, Min, OuterRef, Q

from hipq_django.conf.instances import InstanceSettings
from hipq_django.database import clock
from hipq_django.flow.declaring import KIND, ComponentDeclaration
from hipq_django.flow.models import Channel, Message, Node, NodePort, StagedJob, Wake
from hipq_django.flow.settings import flow_settings
from hipq_django.flow.values import RESTS, SIDES
from hipq_django.job_types.registry import get_declared
from hipq_django.models import JobType
from hipq_django.monitoring.commands import command
from hipq_django.monitoring.counts import COUNT_LIMIT, capped_count, format_count
from hipq_django.monitoring.doctor import Finding
from hipq_django.monitoring.doctor.findings import problem, span, warning

OLD_WAKE_SECONDS = 5.0
MANY_UNREAD = 100_000
MOST_NAMED = 5


def old(model: Any, config: InstanceSettings, days: float | None) -> Any:
    """Return the log entries, or requests, past LOG_RETENTION_DAYS, or older than `days`."""
    kept = flow_settings(config.name).log_retention_days if days is None else days
    before = clock.now(config.database) - timedelta(days=kept)
    rows = model.objects.using(config.database).filter(instance=config.name)
    return rows.filter(create_time__lt=before)


def needed_by_stages(using: str) -> Q:
    """Return the condition of jobs whose ends stages have not handed on yet."""
    return Q(Exists(StagedJob.objects.using(using).filter(job_id=OuterRef("pk"))))


def count(config: InstanceSettings) -> dict[str, float]:
    """Return how many nodes rest how, what lies unread, and how old the oldest wake is.

    Nothing is counted beyond 10,000.
    """
    using = config.database
    nodes = Node.objects.using(using).filter(instance=config.name)
    first = nodes.order_by("pk").values("pk")[:COUNT_LIMIT]
    found = Node.objects.using(using).filter(pk__in=first).values_list("rest")
    rests = dict(found.annotate(number=Count("pk")).order_by())
    unread = Message.objects.using(using).filter(
        port__node__instance=config.name, port__direction="in", as_default=False
    )
    return {
        **{rest: rests.get(rest, 0) for rest in RESTS if rest in rests or rest == "failed"},
        "with_a_run": min(capped_count(nodes.filter(job_id__isnull=False)), COUNT_LIMIT),
        "unread": min(capped_count(unread), COUNT_LIMIT),
        "oldest_wake_seconds": round(_oldest_wake(config), 1),
    }


def _oldest_wake(config: InstanceSettings) -> float:
    """Return for how long a wake that is due has waited, in seconds."""
    using, now = config.database, clock.now(config.database)
    rows = Wake.objects.using(using).filter(instance=config.name, node__paused=False)
    oldest = rows.order_by("pk").values_list("create_time", flat=True).first()
    return max(0.0, (now - oldest).total_seconds()) if oldest else 0.0


def examine(config: InstanceSettings) -> Iterator[Finding]:
    """Yield what is wrong with the flows of an instance."""
    age = _oldest_wake(config)
    if age > OLD_WAKE_SECONDS:
        yield problem(
            "old_wake", "flows", f"a node was woken {span(age)} ago, and no run was made of it",
            "workers make runs in each pass: none is running, or their passes fail",
            f"start {command('hipq_worker', instance=config.name)}, or read its log for "
            "node_not_run",
        )  # fmt: skip
    yield from _undeclared(config)
    yield from _unread_outputs(config)
    yield from _observers_of_themselves(config)
    yield from _missing_ports(config)
    yield from _undeclared_ports(config)


def _types(config: InstanceSettings) -> dict[int, str]:
    """Return the components of which there are nodes, by the ids of their job types."""
    nodes = Node.objects.using(config.database).filter(job_type=OuterRef("pk"))
    kinds = JobType.objects.using(config.database).filter(instance=config.name, kind=KIND)
    return dict(kinds.filter(Exists(nodes)).values_list("pk", "name"))


def _undeclared(config: InstanceSettings) -> Iterator[Finding]:
    for name in sorted(_types(config).values()):
        if get_declared(config.name, name) is None:
            yield warning(
                "undeclared_component", f"component {name}", "there are nodes of it",
                "the code of this process does not declare it, so their runs wait",
                "deploy the code that does, or terminate them: node.terminate(force=True)",
            )  # fmt: skip


def _unread_outputs(config: InstanceSettings) -> Iterator[Finding]:
    using = config.database
    outs = NodePort.objects.using(using).filter(node__instance=config.name, direction="out")
    unread = Message.objects.using(using).filter(port=OuterRef("pk"), as_default=False)
    beyond = unread.order_by("port", "pk")[MANY_UNREAD : MANY_UNREAD + 1]
    full = outs.filter(Exists(beyond), outgoing__isnull=True).select_related("node")
    for port in full.order_by("pk")[:MOST_NAMED]:
        yield warning(
            "unread_output", f"{port.node}, out-port {port.name}",
            f"more than {format_count(MANY_UNREAD)} messages lie there",
            "nobody reads it, and it is connected to nothing",
            "connect or read it, or write to it no more",
        )  # fmt: skip


def _observers_of_themselves(config: InstanceSettings) -> Iterator[Finding]:
    rows = Channel.objects.using(config.database).filter(
        port__node__instance=config.name, port__direction="in", name__startswith="/flow/node/"
    )
    own = rows.annotate(node=F("port__node_id")).values_list("name", "node")
    for name, node in own.order_by("pk")[:COUNT_LIMIT]:
        if name == f"/flow/node/{node}":
            yield warning(
                "observes_itself", f"node {node}", "it subscribes to what is said of itself",
                "the status of an observer is never published, so it hears only what is published "
                "there by hand",
                "subscribe to the channels of other nodes",
            )  # fmt: skip


def _declared(config: InstanceSettings) -> Iterator[tuple[ComponentDeclaration, Any]]:
    """Yield the components of which there are nodes, each with the ids of the oldest of these."""
    for pk, name in sorted(_types(config).items()):
        declared = get_declared(config.name, name)
        if isinstance(declared, ComponentDeclaration):
            nodes = Node.objects.using(config.database).filter(job_type=pk).order_by("pk")
            yield declared, nodes.values("pk")[:COUNT_LIMIT]


def _missing_ports(config: InstanceSettings) -> Iterator[Finding]:
    for declared, oldest in _declared(config):
        for direction, side in SIDES.items():
            for port in declared.ports(direction):
                rows = NodePort.objects.using(config.database).filter(
                    node=OuterRef("pk"), direction=direction, name=port
                )
                nodes = Node.objects.using(config.database).filter(~Exists(rows), pk__in=oldest)
                if found := nodes.order_by("pk").first():
                    yield warning(
                        "missing_port", f"component {declared.name}",
                        f"{found}, and maybe others, has no {direction}-port {port!r}",
                        "this release declares it and the node is older",
                        f"who uses it first makes it; node.set_ports({side}={{}}) does it at once, "
                        "and removes the ports and defaults that were given to the node",
                    )  # fmt: skip


def _undeclared_ports(config: InstanceSettings) -> Iterator[Finding]:
    for declared, oldest in _declared(config):
        for direction, side in SIDES.items():
            rows = NodePort.objects.using(config.database).filter(
                node__in=oldest, direction=direction, declared=True
            )
            gone = rows.exclude(name__in=list(declared.ports(direction))).order_by("name")
            for port, node in gone.values_list("name").annotate(Min("node"))[:MOST_NAMED]:
                yield warning(
                    "undeclared_port", f"component {declared.name}",
                    f"node {node}, and maybe others, has an {direction}-port {port!r}",
                    "this release declares it no more, so it stays with its messages as it is",
                    f"move them, node.{side}[{port!r}].move_to(...), and then remove it, "
                    f"node.set_ports({side}={{}}) with the ports that were given to the node",
                )  # fmt: skip
