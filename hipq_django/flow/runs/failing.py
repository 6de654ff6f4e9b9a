"""What becomes of a node whose run has failed for good, or ended without its own end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import transaction

from hipq_django.database.locks import locked
from hipq_django.database.lookups import ids_in
from hipq_django.domain.states import Outcome
from hipq_django.flow import delivering, logs
from hipq_django.flow.delivering import LockedPortError, wake
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.lifecycle import end_rows
from hipq_django.flow.models import Message, Node, NodePort
from hipq_django.flow.publishing import announce_status
from hipq_django.flow.statements import delete_messages
from hipq_django.flow.values import Rest, Write
from hipq_django.models import Job
from hipq_django.models.base import no_error
from hipq_django.models.masking import shown

ERROR_PORT = "error"


def fail_ended(nodes: Sequence[Node], using: str, now: datetime) -> int:
    """Clear the runs of locked nodes whose job is final or gone; return how many there were."""
    live = [node.job_id for node in nodes if node.job_id]
    jobs = Job.objects.using(using).in_bulk(live) if live else {}
    moved = 0
    for node in nodes:
        job = jobs.get(node.job_id or 0)
        if node.job_id is None or (job is not None and not job.is_final):
            continue
        moved += 1
        if job is None or job.outcome == Outcome.SUCCEEDED:
            clear(node, using)  # its end is not known: let it look again
            wake([node.pk], node.instance, using, now)
        else:
            fail(node, job, using, now)
    return moved


def clear(node: Node, using: str, **values: Any) -> None:
    """Note that a locked node has no run any more; an alarm that is due later stays."""
    node.job_id = node.run_time = None
    changes = {"job_id": None, "run_time": None, "pending": {}, **values}
    for name, value in values.items():
        setattr(node, name, value)
    Node.objects.using(using).filter(pk=node.pk).update(**changes)


def fail(node: Node, job: Job, using: str, now: datetime) -> None:
    """Let a locked node be failed, unless it has a port for what its code cannot take.

    One that shuts down goes on with that, or is terminated if its `shutdown` has failed for good.
    """
    error = shown(job, job.error)
    if node.rest == Rest.TERMINATING:
        if job.job_data.get("shutdown"):
            end_without_shutdown(node, error, using, run=job.pk)
        else:
            clear(node, using)
            _log(node, error, using, run=job.pk)
            wake([node.pk], node.instance, using, now)
        return
    if _goes_to_error_port(node, job, using, now):
        clear(node, using, error=no_error())
        wake([node.pk], node.instance, using, now)
        return
    fail_without_run(node, error, using, now, run=job.pk)


def end_without_shutdown(node: Node, error: Any, using: str, **fields: Any) -> None:
    """Let a locked node be terminated whose `shutdown` cannot be called, or has failed for good."""
    clear(node, using)
    _log(node, error, using, **fields)
    end_rows([node], using, skip_locked=True)


def fail_without_run(node: Node, error: Any, using: str, now: datetime, **fields: Any) -> None:
    """Let a locked node be failed, log why, and wake its parent."""
    clear(node, using, rest=Rest.FAILED, error=error)
    _log(node, error, using, **fields)
    announce_status([(node, Rest.FAILED)], using, skip_locked=True)
    if node.parent_id is not None:
        wake([node.parent_id], node.instance, using, now)


def _log(node: Node, error: Any, using: str, **fields: Any) -> None:
    entry = {"node": node.pk, **fields, "error": error}
    logs.store([(node.pk, entry)], node.instance, using, skip_locked=True)


def _goes_to_error_port(node: Node, job: Job, using: str, now: datetime) -> bool:
    """Move the messages that the code raised at to the port `error`; return whether there is one.

    What they are was noted when the attempt failed. If a later attempt was lost, or timed out, or
    somebody has cancelled the job, the messages are not to blame for the end.
    """
    hand = node.error if isinstance(node.error, dict) else {}
    if job.outcome == Outcome.CANCELLED or hand.get("attempt") != job.attempt:
        return False
    ports = NodePort.objects.using(using).filter(node=node.pk, direction="out", name=ERROR_PORT)
    port = ports.first()
    if port is None:
        return False
    try:
        with transaction.atomic(using=using):
            values = _take(hand["ids"], using)
            if not values:
                return False
            data = next(iter(values.values())) if len(values) == 1 else values
            value = {"data": data, "error": shown(job, job.error)}
            item = Write(port.pk, value, {"node": node.pk, "run": job.pk})
            delivering.write([item], node.instance, using, now, skip_locked=True)
    except FlowError:  # what the port is connected to does not take it
        return False
    return True


def _take(ids: Sequence[int], using: str) -> dict[str, Any]:
    """Take messages, and return their data by the names of their ports.

    Take none, and return none, if one is gone, or if two have one name, where one of them would be
    lost. Raise `LockedPortError` while somebody else has one, and may leave it.
    """
    rows = Message.objects.using(using).filter(ids_in("pk", ids)).select_related("port")
    found = locked(rows.order_by("pk"), skip_locked=True, to_delete=True)
    values = {message.port.name: message.data for message in found}
    if len(found) < len(ids) and len(found) < rows.count():
        raise LockedPortError(ids)
    if len(values) < len(ids):
        return {}
    delete_messages(ids, using)
    return values
