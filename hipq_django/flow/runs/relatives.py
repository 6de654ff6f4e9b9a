"""What a run does to the parent and children of its node, and to theirs: done when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from hipq_django.database import clock
from hipq_django.database.twins import names_twins
from hipq_django.domain.serialization import to_json
from hipq_django.flow.aliases import Aliases, checked_alias
from hipq_django.flow.creating import check_given
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.family import check_kin, checked_child_name
from hipq_django.flow.graphs.applying import checked_change
from hipq_django.flow.lifecycle import may_run, moment_of
from hipq_django.flow.models import Node
from hipq_django.flow.state import State, check_keys, checked_state

if TYPE_CHECKING:
    from hipq_django.flow.runs.run import Run


RELATIVE = "relative"
"""How it is noted that something is done to a relative: its id, the verb and what that is given."""


def adopted(parent: Node, orphan: Node, name: str) -> tuple[list[Any], dict[str, Any]]:
    """Return what is noted of a child that is to be taken."""
    check_kin("adopt", parent, orphan)
    return [orphan.pk, checked_child_name(name)], _which(orphan)


def disowned(parent: Node, child: Node | str) -> tuple[list[Any], dict[str, Any]]:
    """Return what is noted of a child that is to be let go, which may be its name."""
    if isinstance(child, str):
        return [child], {}
    check_kin("disown", parent, child)
    return [child.pk], _which(child)


def _which(node: Node) -> dict[str, Any]:
    """Return what tells a node from another one to which SQLite has given its id since."""
    return {"created": node.create_time.isoformat()}


class Relative:
    """Notes the verbs of a relative, under the names and with the options that `Node` has."""

    def __init__(self, run: Run, node: Node) -> None:
        self._run = run
        self._node = node

    def note(self, verb: str, *args: Any, **options: Any) -> None:
        """Note what is done to this node when the run ends."""
        self.learn(args, options)
        self._run.note(RELATIVE, self._node.pk, verb, *args, **options)

    def learn(self, *values: Any) -> None:
        """Note the sensitive values of what the code has read of this node, or made itself."""
        self._run.learn(*values)

    def noted(self) -> list[tuple[str, list[Any]]]:
        """Return what is noted of this node, in its order, with the arguments."""
        verbs = [*self._run.done.verbs, *self._run.doing.verbs]
        of_this = [args for verb, args, _ in verbs if verb == RELATIVE]
        return [(verb, args) for pk, verb, *args in of_this if pk == self._node.pk]

    @property
    def state(self) -> RelativeState:
        """Its state."""
        return RelativeState(self, self._node)

    @property
    def aliases(self) -> RelativeAliases:
        """Its aliases."""
        return RelativeAliases(self, self._node)

    def set_ports(
        self,
        inputs: Mapping[str, Mapping[str, Any]] | None = None,
        outputs: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Give it other ports."""
        sides = {"inputs": inputs, "outputs": outputs}
        check_given(sides, "set_ports")
        given = {side: ports for side, ports in sides.items() if ports is not None}
        self.note("set_ports", **self._run.as_json("set_ports", given))

    def run(
        self,
        *,
        parent: bool = False,
        force: bool = False,
        at: datetime | float | None = None,
        wait: float | None = None,
    ) -> Node | None:
        """Let it run, or its parent; return the node that would run now, or None."""
        moment = moment_of(at, wait, clock.now(self._node.using))
        if parent:
            above: Any = self._node.parent
            return above and above.run(force=force, at=moment)  # type: ignore[no-any-return]  # a row or None
        if not (force or may_run(self._node)):
            return None
        self.note("run", force=force, at=moment and moment.timestamp())
        return self._node

    def terminate(
        self, *, recursive: bool = False, delete: bool = False, force: bool = False
    ) -> Node:
        """Let it shut down."""
        self.note("terminate", recursive=recursive, delete=delete, force=force)
        return self._node

    def delete(self, *_args: Any, **_options: Any) -> bool:
        """Delete its tree, if all of that is terminated now, and still is when the run ends."""
        if not self._node.is_terminated():
            return False
        self.note("delete")
        return True

    def pause(self) -> None:
        """Let it not run until it is resumed."""
        self.note("pause")

    def resume(self) -> None:
        """Let it run again."""
        self.note("resume")

    def spawn(self, name: str, component: Any, **options: Any) -> None:
        """Start a child of it, which does not exist before."""
        what, values = self._run.spawned(self._node, name, component, options)
        self.note("spawn", what, **values)

    def apply(self, spec: Mapping[str, Any]) -> None:
        """Let a graph be as another spec says; raise `GraphError` now if that is not right now."""
        checked_change(self._node, spec)
        self.note("apply", to_json(spec))

    def adopt(self, orphan: Node, name: str) -> None:
        """Let it take a node without parent as a child."""
        args, options = adopted(self._node, orphan, name)
        self.note("adopt", *args, **options)

    def disown(self, child: Node | str) -> None:
        """Let it let a child go."""
        args, options = disowned(self._node, child)
        self.note("disown", *args, **options)

    def publish(self, message: Any) -> None:
        """Publish on its channel."""
        self._run.publish(f"/flow/node/{self._node.pk}", message)

    def lock(self, *_args: Any, **_options: Any) -> NoReturn:
        """Raise `FlowError`: the answer is wanted at once."""
        self.refuse("lock")

    def refresh_lock(self, *_args: Any) -> NoReturn:
        """Raise `FlowError`: the answer is wanted at once."""
        self.refuse("refresh_lock")

    def unlock(self, *_args: Any) -> NoReturn:
        """Raise `FlowError`: the answer is wanted at once."""
        self.refuse("unlock")

    def refuse(self, verb: str) -> NoReturn:
        """Raise `FlowError` for a verb whose answer cannot wait for the end of the run."""
        raise FlowError(
            f"{verb}() of {self._node} answers at once, but what a run does to its parent and "
            f"children is done when it ends; call it on flow.get({self._node.pk})."
        )


@names_twins("state")
class RelativeState(State):
    """The state of a relative: as it is now, with what this run has set."""

    def __init__(self, relative: Relative, node: Node) -> None:
        super().__init__(node)
        self._relative = relative

    def all(self) -> dict[str, Any]:
        """Return all values."""
        values = super().all()
        for verb, args in self._relative.noted():
            if verb == "state.set":
                values |= args[0]
            elif verb == "state.unset":
                values = {key: value for key, value in values.items() if key not in args}
        self._relative.learn(values)
        return values

    def set(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Set values when the run ends; this run sees them at once."""
        self._relative.note("state.set", checked_state({} if values is None else values, **more))

    def unset(self, *keys: str) -> None:
        """Remove values when the run ends."""
        check_keys(keys)
        self._relative.note("state.unset", *keys)

    def change(self, function: Any) -> NoReturn:
        """Raise `FlowError`: the values are wanted at once, and nobody else may change them."""
        self._relative.refuse("state.change")


class RelativeAliases(Aliases):
    """The aliases of a relative."""

    def __init__(self, relative: Relative, node: Node) -> None:
        super().__init__(node)
        self._relative = relative

    def add(self, name: str) -> None:
        """Let it be found by this name when the run has ended."""
        self._relative.note("aliases.add", checked_alias(name))

    def remove(self, name: str) -> None:
        """Take a name away when the run ends."""
        self._relative.note("aliases.remove", checked_alias(name))
