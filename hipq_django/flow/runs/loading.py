"""Reads what runs need, for a whole batch of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet

from hipq_django.database.built_once import built_once
from hipq_django.database.lookups import ids_in
from hipq_django.domain.states import Phase
from hipq_django.flow.models import Message, Node, NodePort
from hipq_django.flow.publishing import hears_log
from hipq_django.flow.runs.run import Run
from hipq_django.flow.runs.unread import NO_PAGE, UnreadMessages
from hipq_django.flow.statements import first_pages, newest_defaults, observers_among
from hipq_django.flow.values import Effects
from hipq_django.transitions.values import Claim

NEVER = -1
"""The wakes that a run has seen which has not looked: a response came before its request."""

NODE = (
    "id", "instance", "queue", "job_type", "parent", "name", "args", "rest", "paused", "job_id",
    "wakes", "started", "state_values", "pending", "lock_until", "create_time",
)  # fmt: skip
PORT = (
    "id", "node", "direction", "name", "type", "mode", "has_default", "value", "value_context",
)  # fmt: skip
"""What a run needs of its node and its ports; Django reads the rest when it is asked for."""

FIRST_PAGE = 200
"""How many messages of each port are read for a whole batch; a run reads more by itself."""


def load(claims: Sequence[Claim]) -> list[Run]:
    """Return the runs of claims.

    Nodes are read before their messages: a run must not know of a wake whose messages it does not
    see.
    """
    if not claims:
        return []
    using = claims[0].snapshot.queue.using
    ids = {claim: claim.job.job_data["node"] for claim in claims}
    nodes = {row.pk: row for row in _nodes(ids.values(), using)}
    runs = [Run(claim, nodes.get(pk)) for claim, pk in ids.items()]
    ready = [run for run in runs if not run.is_stale]
    _load_ports(ready, using)
    _begin_logs(ready, using)
    for run in ready:
        run.node.job_type = run.claim.snapshot.job_type
        if run.claim.phase is Phase.RESPONSE:
            # Whatever came since `perform` looked has not been seen by it.
            run.wakes_seen = run.node.pending.get("wakes", NEVER)
            run.go_on_from(Effects.from_json(run.node.pending.get("effects", {})))
    return runs


@built_once
def _nodes(ids: Sequence[int], using: str) -> QuerySet[Node]:
    return Node.objects.using(using).filter(ids_in("pk", ids)).only(*NODE)


def _begin_logs(runs: Sequence[Run], using: str) -> None:
    """Let runs log what they read and write where somebody wants it; observers are not heard."""
    is_heard = bool(runs) and hears_log(using)
    observers = observers_among([run.node.pk for run in runs], using) if is_heard else set()
    for run in runs:
        run.begin_log(is_heard=is_heard and run.node.pk not in observers)


def _load_ports(runs: Sequence[Run], using: str) -> None:
    by_node = {run.node.pk: run for run in runs}
    ports: list[Any] = _ports_of(by_node, using)
    ins = [port.pk for port in ports if port.direction == "in"]
    first = first_pages(ins, FIRST_PAGE, using)
    defaults = newest_defaults([port.pk for port in ports if port.has_news], using)
    for port in ports:
        run = by_node[port.node_id]
        run.rows[port.place] = port
        if port.direction == "in":
            page = first.get(port.pk, NO_PAGE)
            run.unread[port.place] = UnreadMessages(port, run.volume, page, FIRST_PAGE)
        if port.pk in defaults:
            run.defaults[port.pk] = defaults[port.pk]


@built_once
def _ports_of(nodes: Sequence[int], using: str) -> QuerySet[NodePort]:
    """Return the ports of nodes, with whether a message lies there that is to be the default."""
    news = Message.objects.using(using).filter(port=OuterRef("pk"), as_default=True)
    rows = NodePort.objects.using(using).filter(ids_in("node", nodes)).only(*PORT)
    return rows.annotate(has_news=Exists(news))
