"""The log of flows: stored, and published on `/flow/log`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from asgiref.sync import sync_to_async

from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.database import clock
from hipq_django.database.transactions import write_transaction
from hipq_django.domain.redaction import HasSecrets, Masking, Redactor, as_shown, quoted
from hipq_django.domain.serialization import error_of
from hipq_django.flow import delivering
from hipq_django.flow.contexts import (
    Entry,
    current_context,
    current_group,
    current_node,
    current_secrets,
)
from hipq_django.flow.declaring import logging_components
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.models import LogEntry, Node
from hipq_django.flow.publishing import LOG_CHANNEL, hears_log
from hipq_django.flow.settings import flow_settings
from hipq_django.flow.statements import is_heard, observers_among
from hipq_django.flow.values import Write, stored_json
from hipq_django.job_types.registry import sensitive_fields


def store(
    entries: Iterable[tuple[int | None, Mapping[str, Any]]],
    instance: str,
    using: str,
    *,
    skip_locked: bool = False,
) -> None:
    """Store log entries, each of a node or none, and publish them if somebody listens.

    Those of observers are stored only: one that heard of its own runs would run for ever.

    With `skip_locked` raise `LockedPortError` instead of waiting for a port.
    """
    fields = _fields_of(instance)
    wanted = [(pk, shown_entry({**stamp(), **entry}, fields)) for pk, entry in entries]
    if not wanted:
        return
    now = clock.now(using)
    if flow_settings(instance).log != "none":
        rows = [
            LogEntry(instance=instance, node_id=pk, entry=entry, create_time=now)
            for pk, entry in wanted
        ]
        LogEntry.objects.using(using).bulk_create(rows)
    if is_heard(using):
        _publish(wanted, instance, using, skip_locked=skip_locked)


def _publish(
    entries: Sequence[tuple[int | None, Mapping[str, Any]]],
    instance: str,
    using: str,
    *,
    skip_locked: bool,
) -> None:
    observers = observers_among([pk for pk, _ in entries if pk is not None], using)
    items = [Write(LOG_CHANNEL, entry, log=False) for pk, entry in entries if pk not in observers]
    delivering.write(items, instance, using, clock.now(using), skip_locked=skip_locked)


def log(entry: Any, *, instance: str = DEFAULT) -> None:
    """Log a dict, a text or an exception, with what `flow.context` says."""
    using = get_instance(instance).database
    with write_transaction(using):
        store([(current_node(), log_entry(entry))], instance, using)


alog = sync_to_async(log)


def log_entry(entry: Any) -> dict[str, Any]:
    """Return a log entry of a dict, a text or an exception, with the current context.

    In a run it shows none of the sensitive values that the code has seen.
    """
    if isinstance(entry, BaseException):
        said: dict[str, Any] = {"error": error_of(entry)}
    else:
        said = _checked_entry(entry)
    return {**current_context(), **stamp(), **as_shown(current_secrets(), said)}


def _checked_entry(entry: Any) -> dict[str, Any]:
    said = {"message": entry} if isinstance(entry, str) else entry
    if not isinstance(said, Mapping):
        raise FlowError(
            f"flow.log: {quoted(entry)} is of type {type(entry).__name__}; give a dict, a text or "
            "an exception."
        )
    stored: dict[str, Any] = stored_json(dict(said), "flow.log")
    return stored


def group_entry(entry: Entry) -> dict[str, Any]:
    """Return the log entry of what a group has read and written."""
    said = {"read": entry.read, "write": entry.written}
    return {**current_context(), **stamp(), **shown_entry(said, current_secrets())}


@contextmanager
def data_logged(node: Node) -> Iterator[Entry | None]:
    """Yield where to note what the block reads and writes at ports of a node; None: nowhere.

    Without an outer group this is one entry.
    """
    group, is_stored = current_group(), _stores_data_of(node)
    if not (group.log and (is_stored or hears_log(node.using))):
        yield None
        return
    entry = Entry() if group.entry is None else group.entry
    entry.is_stored |= is_stored
    yield entry
    if group.entry is None:
        record(entry, node.instance, node.using)


def stores_data(instance: str, component: str) -> bool:
    """Return whether the log has what the nodes of a component read and write."""
    kept = flow_settings(instance).log
    return component in logging_components(instance) if kept == "errors" else kept == "all"


def _stores_data_of(node: Node) -> bool:
    if flow_settings(node.instance).log == "errors" and not logging_components(node.instance):
        return False  # the name of its component may not be read yet
    return stores_data(node.instance, node.job_type.name)


def record(entry: Entry, instance: str, using: str) -> None:
    """Store an entry of what was read and written outside of runs, or only publish it."""
    if not entry:
        return
    said = (current_node() or entry.node, group_entry(entry))
    if entry.is_stored:
        store([said], instance, using)
    else:
        shown = shown_entry(said[1], _fields_of(instance))
        _publish([(said[0], shown)], instance, using, skip_locked=False)


def _fields_of(instance: str) -> HasSecrets:
    return Masking(Redactor(sensitive_fields(instance)))


def shown_entry(entry: Any, secrets: HasSecrets) -> Any:
    """Return a log entry that may be shown: what was read and written is named by its ports."""
    redactor = secrets.redactor
    if not redactor.fields or not isinstance(entry, dict):
        return redactor.mask(entry)
    lines = {side: entry[side] for side in ("read", "write") if _are_lines(entry.get(side))}
    rest = {key: value for key, value in entry.items() if key not in lines}
    apart = [[_apart(line) for line in side] for side in lines.values()]
    shown, *sides = redactor.mask([rest, *apart])  # all at once: each may quote another
    for name, side in zip(lines, sides, strict=True):
        shown[name] = [_together(*line) for line in side]
    return shown


def _are_lines(value: Any) -> bool:
    """Return whether these are lines of a group, and not what code has logged by such a key."""
    return isinstance(value, list) and all(map(_is_line, value))


def _is_line(value: Any) -> bool:
    if not (isinstance(value, dict) and "node" in value and isinstance(value.get("data"), list)):
        return False
    return isinstance(value.get("input", value.get("output")), str)


def _apart(line: dict[str, Any]) -> list[Any]:
    """Return a line without its values, and these, each by the name of its port."""
    port = line.get("input", line.get("output"))
    rest = {key: value for key, value in line.items() if key != "data"}
    return [rest, [{port: value} for value in line["data"]]]


def _together(line: dict[str, Any], values: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {**line, "data": [value for named in values for value in named.values()]}


def stamp() -> dict[str, str]:
    """Return the time of a log entry."""
    return {"timestamp": datetime.now(UTC).isoformat()}
