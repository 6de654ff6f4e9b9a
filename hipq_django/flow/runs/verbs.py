"""Verbs of runs on nodes and ports: checked and noted at once, done when the run ends.

All that is noted is JSON: it outlives the process of a run that waits for its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from django.db import Error

from hipq_django.api.building import given_values
from hipq_django.api.enqueueing import enqueue
from hipq_django.database import clock
from hipq_django.domain.drafts import NewJob
from hipq_django.domain.job_options import in_json
from hipq_django.domain.serialization import error_of
from hipq_django.exceptions import HipqError
from hipq_django.flow import family
from hipq_django.flow.connecting import PORT_VERBS
from hipq_django.flow.creating import check_given, checked_job
from hipq_django.flow.declared_ports import port_options
from hipq_django.flow.delivering import LockedPortError
from hipq_django.flow.exceptions import FlowError, UnknownNodeError
from hipq_django.flow.family import check_kin, checked_child_name
from hipq_django.flow.graphs import applying
from hipq_django.flow.graphs.applying import not_a_graph
from hipq_django.flow.graphs.checking import checked_component, checked_form
from hipq_django.flow.library.graph import GRAPH
from hipq_django.flow.lifecycle import may_run, moment_of
from hipq_django.flow.models import Node
from hipq_django.flow.ports import Port
from hipq_django.flow.stages import stage
from hipq_django.flow.values import stored_json

if TYPE_CHECKING:
    from hipq_django.flow.runs.run import Run

Place = Sequence[Any]

RELATIVE = "relative"
"""The verb of a note about a relative; its arguments are the id, the verb and that one's own."""


# In the run


def ask(run: Run, node: Node, verb: str, /, *args: Any, **options: Any) -> Any:
    """Note a verb of the node of a run, or of a relative; return as much of the answer as is known.

    Mistakes that can be found before the end of the run raise here.
    """
    if verb in _ANSWERED_AT_ONCE:
        raise FlowError(
            f"{verb}() of {node} answers at once, but what a run does is done when it ends; call "
            f"it on flow.get({node.pk})."
        )
    if verb in _ASKED:
        return _ASKED[verb](run, node, *args, **options)
    _note(run, node, verb, *args, **options)
    return None


def _note(run: Run, node: Node, verb: str, /, *args: Any, **options: Any) -> None:
    run.learn(args, options)
    if node is run.node:
        run.note(verb, *args, **options)
    else:
        run.note(RELATIVE, node.pk, verb, *args, **options)


def _ask_set_ports(
    run: Run,
    node: Node,
    inputs: Mapping[str, Mapping[str, Any]] | None = None,
    outputs: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    sides = {"inputs": inputs, "outputs": outputs}
    given = {side: ports for side, ports in sides.items() if ports is not None}
    _note(run, node, "set_ports", **_as_json("set_ports", given))


def _ask_run(
    run: Run,
    node: Node,
    *,
    parent: bool = False,
    force: bool = False,
    at: datetime | float | None = None,
    wait: float | None = None,
) -> Node | None:
    moment = moment_of(at, wait, clock.now(run.using))
    if parent:
        above: Any = node.parent
        return above and above.run(force=force, at=moment)  # type: ignore[no-any-return]  # a row or None
    if not (force or may_run(node)):
        return None
    _note(run, node, "run", force=force, at=moment and moment.timestamp())
    return node


def _ask_terminate(run: Run, node: Node, **options: bool) -> Node:
    _note(run, node, "terminate", **options)
    return node


def _ask_delete(run: Run, node: Node, *_args: Any, **_options: Any) -> bool:
    """Note the deletion if the tree is terminated now; the end of the run looks again."""
    is_terminated = node.is_terminated()
    if is_terminated:
        _note(run, node, "delete")
    return is_terminated


def _ask_spawn(run: Run, node: Node, /, name: str, component: Any, **options: Any) -> None:
    what, child = checked_component(component, node.instance), checked_child_name(name)
    if "parent" in options:
        raise FlowError(f"self.spawn: {child!r} is spawned below {node}; leave out parent.")
    check_given(options)
    values = {**options, "job": checked_job(options.get("job"), node.instance)}
    data = (values.get("data") or {}).items()
    values["data"] = {port: list(messages) for port, messages in data}
    if at := moment_of(values.get("at"), None, clock.now(run.using)):
        values["at"] = at.timestamp()
    _note(run, node, "spawn", what, **{**_as_json("spawn", values), "name": child, "by": ""})


def _as_json(verb: str, options: Mapping[str, Any]) -> dict[str, Any]:
    values = {**options}
    for side in values.keys() & {"inputs", "outputs"}:
        ports = (values[side] or {}).items()
        values[side] = {n: {**given, "type": port_options(n, given).type} for n, given in ports}
    stored: dict[str, Any] = stored_json(values, f"self.{verb}")
    return stored


def _ask_apply(run: Run, node: Node, spec: Mapping[str, Any]) -> None:
    if node.job_type.name != GRAPH:
        raise not_a_graph(node)
    _note(run, node, "apply", checked_form(spec, node.instance))


def _ask_adopt(run: Run, node: Node, orphan: Node, name: str) -> None:
    check_kin("adopt", node, orphan)
    _note(run, node, "adopt", orphan.pk, checked_child_name(name))


def _ask_disown(run: Run, node: Node, child: Node | str) -> None:
    if isinstance(child, str):
        _note(run, node, "disown", child)
    else:
        check_kin("disown", node, child)
        _note(run, node, "disown", child.pk)


def _set_state(run: Run, node: Node, values: dict[str, Any]) -> None:
    if node is run.node:  # whose changes are merged key by key, and are no verbs
        run.learn(values)
        run.doing.set_state(values)
    else:
        _note(run, node, "state.set", values)


def _unset_state(run: Run, node: Node, *keys: str) -> None:
    if node is run.node:
        run.doing.unset_state(keys)
    else:
        _note(run, node, "state.unset", *keys)


def _publish(run: Run, node: Node, message: Any) -> None:
    run.publish(f"/flow/node/{node.pk}", message)


_ANSWERED_AT_ONCE = frozenset({"lock", "refresh_lock", "unlock", "state.change"})

_ASKED: dict[str, Callable[..., Any]] = {
    "set_ports": _ask_set_ports,
    "run": _ask_run,
    "terminate": _ask_terminate,
    "delete": _ask_delete,
    "spawn": _ask_spawn,
    "apply": _ask_apply,
    "adopt": _ask_adopt,
    "disown": _ask_disown,
    "publish": _publish,
    "state.set": _set_state,
    "state.unset": _unset_state,
}
"""The verbs that need more than a note of their arguments."""


def kept_options(new: NewJob) -> dict[str, Any]:
    """Return the options of a job in JSON, in which a run keeps them for `_enqueue`."""
    return in_json(given_values(new))


# At its end


def _spawn(node: Node, component: str | dict[str, Any], **options: Any) -> None:
    applying.start(component, parent=node, instance=node.instance, **options)


def _adopt(node: Node, orphan: int, name: str, **_: Any) -> None:  # of an older release
    family.adopt(node, _node(node, orphan), name)


def _disown(node: Node, child: int | str, **_: Any) -> None:  # of an older release
    family.disown(node, child if isinstance(child, str) else _node(node, child))


def _at_port(node: Node, verb: str, place: Place, *given: Sequence[Any]) -> None:
    args = [
        [item if isinstance(item, str) else _port(node, item) for item in part] for part in given
    ]
    _port(node, place).sink.do(verb, *args)


def _enqueue(node: Node, job_type: str, data: Any, **options: Any) -> None:
    if moment := options.get("scheduled_run_time"):
        options["scheduled_run_time"] = datetime.fromisoformat(moment)
    enqueue(job_type, data, instance=node.instance, **options)


def _delete(node: Node) -> None:
    if node.is_terminated():  # by the dispatcher, which waits for none of its ports
        node.terminate(delete=True)


def _relative(node: Node, pk: int, verb: str, *args: Any, **options: Any) -> None:
    relative = _node(node, pk)
    if verb in VERBS:
        VERBS[verb](relative, *args, **options)
    else:
        attrgetter(verb)(relative)(*args, **options)
    node.refresh_from_db(fields=["parent", "rest", "state_values"])  # it may be in that tree


def _port(node: Node, place: Place) -> Port:
    owner, direction, name = place
    return Port(node if owner == node.pk else _node(node, owner), direction, name)


def _node(node: Node, pk: int) -> Node:
    """Return a node that a run has noted."""
    found = Node.objects.using(node.using).filter(pk=pk).first()
    if found is None:
        raise UnknownNodeError(f"{node} names node {pk}, which is gone.")
    return found


VERBS: dict[str, Callable[..., None]] = {
    "spawn": _spawn,
    "adopt": _adopt,
    "disown": _disown,
    "enqueue": _enqueue,
    "stage": stage,
    "delete": _delete,
    RELATIVE: _relative,
}


CHANGE_NO_WAY = frozenset({"enqueue", "stage"})
"""The verbs that do not change where anything goes that is written or published."""


def do(node: Node, verb: str, args: Sequence[Any], options: Mapping[str, Any]) -> None:
    """Do a verb that a run has noted; raise `FlowError` if code of the project breaks in it.

    A check of arguments that raises would otherwise keep the end of the run from being written.
    """
    try:
        if verb in PORT_VERBS:
            _at_port(node, verb, *args)
        else:
            VERBS[verb](node, *args, **options)
    except (HipqError, Error, LockedPortError):
        raise
    except Exception as error:
        raise FlowError(f"{verb}: {error_of(error)}") from error
