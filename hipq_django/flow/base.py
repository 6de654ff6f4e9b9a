"""The base of components: their ports, state and family."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from operator import or_
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from asgiref.sync import async_to_sync, sync_to_async
from django.utils.functional import cached_property

from hipq_django.api.finishing import ending
from hipq_django.database.transactions import bound_silence
from hipq_django.database.twins import method_twin, property_twin
from hipq_django.flow.contexts import set_group
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.values import is_same

if TYPE_CHECKING:
    from hipq_django.flow.declaring import ComponentDeclaration
    from hipq_django.flow.models import Node
    from hipq_django.flow.ports import Port
    from hipq_django.flow.runs.run import Run
    from hipq_django.flow.state import State
    from hipq_django.models import Job


_PLAIN = frozenset({type(None), bool, int, float, str, list, tuple, dict})
"""Types that are never awaitable: those of nearly all values."""


class Suspended(BaseException):
    """Ends a run whose node waits for something."""


def _read_ahead(ports: Iterable[Port]) -> None:
    """Read the next page of each port that is used up."""
    for port in ports:
        port.sink.has_messages()


class Component:
    """The base of components that are classes; one object for each run.

    What is done through it counts when the run has ended well: reads, writes, state, publications,
    log entries, and what is done to parent and children. A run sees what it has read and set in a
    state, but not what it has written to ports.
    """

    declaration: ClassVar[ComponentDeclaration]

    def __init__(self, run: Run) -> None:
        self._run = run
        self._named: dict[str, Node | None] = {}
        """The children that the code has asked for by their names."""

    @classmethod
    def check_args(cls, args: Sequence[Any]) -> None:
        """Raise `FlowError` unless `perform` can be called with these arguments of a node."""
        try:
            inspect.signature(cls.perform).bind(None, *args)
        except TypeError as error:
            raise FlowError(
                f"component {cls.declaration.name!r}: perform cannot be called with the arguments: "
                f"{error}."
            ) from error

    # What a component may have

    def perform(self, *args: Any) -> Any:
        """Read ports and state, work, return; return `WAIT` to wait for an answer."""
        raise NotImplementedError

    def startup(self) -> Any:
        """Run once, before the first `perform`."""

    def shutdown(self) -> Any:
        """Run once, when the node is terminated."""

    def on_response(self, response: Any) -> Any:
        """Go on where `perform` returned `WAIT`, with the answer."""

    # What it is given

    @property
    def args(self) -> list[Any]:
        """The arguments of the node."""
        return list(self._run.node.args)

    @property
    def node(self) -> Node:
        """The node as it was when the run began. What is done through it is done at once."""
        return self._run.node

    @property
    def job(self) -> Job:
        """The job of this run, for `callback_url` and its key."""
        return self._run.claim.job

    @property
    def inputs(self) -> Mapping[str, Port]:
        """The in-ports."""
        return self._run.inputs

    @property
    def outputs(self) -> Mapping[str, Port]:
        """The out-ports."""
        return self._run.outputs

    @property
    def state(self) -> State:
        """The values that the node keeps."""
        return self._run.state

    @cached_property
    def parent(self) -> Node | None:
        """The parent, or None; verbs on it are done when the run ends.

        None also if it has let the node go since, and is deleted.
        """
        return self._run.parent()

    @cached_property
    def children(self) -> dict[str, Node]:
        """The children by their names; verbs on them are done when the run ends."""
        return {name: self._run.relative(row) for name, row in self.node.children.items()}

    def child(self, name: str) -> Node | None:
        """Return a child, or None; one that this run spawns is there in the next run."""
        if name not in self._named:
            found = self.node.child(str(name))
            self._named[name] = found and self._run.relative(found)
        return self._named[name]

    @property_twin
    def aparent(self) -> Node | None:
        """Return the parent in async code."""
        return self.parent

    @property_twin
    def achildren(self) -> dict[str, Node]:
        """Return the children in async code."""
        return self.children

    achild = method_twin(child)

    # What it does

    def each(self, *names: str) -> Iterator[Any]:
        """Yield one value of each of the in-ports, again and again while there are any.

        With one name the values themselves, with several tuples of them. Defaults fill in where
        others have messages. If a port lacks its value the run suspends, and nothing of the others
        is taken. If all have defaults only, these are yielded once until one of them changes, and
        what is written then becomes a default. What a completed tuple did is kept if a later one
        raises, but not in `on_response`: that counts as a whole. A loop in a loop belongs to the
        tuple of the outer one.
        """
        run = self._run
        ports = [self.inputs[name] for name in names]
        defaults = [
            port.sink.default_packet() is not None for port in ports
        ]  # a run sees none that it sets itself
        lies: list[bool] = []
        for _ in run.turns():
            lies = [port.sink.has_messages() for port in ports]
            if not (any(lies) and all(map(or_, lies, defaults))):
                break
            with run.one_tuple():
                values = [port.read() for port in ports]
                yield tuple(values) if len(names) > 1 else values[0]
            if not run.end_tuple():
                return
        else:
            run.run_again()
            return
        if any(lies):  # some port lacks its value; what lies on the others stays
            self.suspend()
        if ports and all(defaults):
            yield from self._defaults(names, ports)

    def _some(self, name: str) -> Iterator[Any]:
        """Yield messages of an in-port, as many as `each` takes; the node runs again for others."""
        run, port = self._run, self.inputs[name]
        yield from (value for _, value in zip(run.turns(), port, strict=False))
        if port.sink.has_messages():
            run.run_again()

    async def aeach(self, *names: str) -> AsyncIterator[Any]:
        """Yield the same in async code: `async for order, limit in self.aeach(…)`."""
        ports = [self.inputs[name] for name in names]
        values = self.each(*names)
        while True:
            await sync_to_async(_read_ahead)(ports)
            try:
                value = next(values)
            except StopIteration:
                return
            yield value

    def _defaults(self, names: Sequence[str], ports: Sequence[Port]) -> Iterator[Any]:
        run, key = self._run, f"flow.each:{','.join(names)}"
        values = [port.default for port in ports]
        if is_same(run.state_now().get(key), values):
            return
        run.doing.set_state({key: values})
        with run.one_tuple(), set_group(as_default=True):
            yield tuple(values) if len(names) > 1 else values[0]
        run.end_tuple()

    def suspend(self) -> NoReturn:
        """End this run at once; the node waits for something. What was done counts."""
        self._run.check_open()
        raise Suspended

    def run(self, *, at: datetime | float | None = None, wait: float | None = None) -> None:
        """Run the node once more after this run.

        If the code raises, the next attempt is that run, but a moment for later is kept. If there
        is none, the node is failed, and runs by force only.
        """
        self._run.run_again(at=at, wait=wait)

    def terminate(self, *, recursive: bool = False) -> None:
        """Shut the node down after this run, also if this one fails."""
        self._run.terminate(recursive=recursive)

    def delete(self) -> None:
        """Shut down and delete the node, and all below it, after this run."""
        self._run.terminate(recursive=True, delete=True)

    def spawn(self, /, name: str, component: Any, **options: Any) -> None:
        """Start a child when this run ends; options are those of `flow.start`."""
        self._run.ask(self.node, "spawn", name, component, **options)

    aspawn = method_twin(spawn)

    def adopt(self, orphan: Node, name: str) -> None:
        """Take a node without parent as a child when this run ends."""
        self._run.ask(self.node, "adopt", orphan, name)

    def disown(self, child: Node | str) -> None:
        """Disown a child when this run ends."""
        self._run.ask(self.node, "disown", child)

    def enqueue(self, /, job_type: str, job_data: Any = None, **options: Any) -> None:
        """Enqueue a job when this run ends; options are those of `hipq_django.enqueue`."""
        self._run.enqueue(job_type, {} if job_data is None else job_data, options)

    aenqueue = method_twin(enqueue)

    async def astep(
        self, name: str, function: Callable[..., Any], *args: Any, **options: Any
    ) -> Any:
        """Do `step` in async code, with a function or an `async def`."""
        return await self.job.astep(name, function, *args, **options)

    def step(self, name: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a function once for this run, however often it is tried; see `Job.step`."""
        return self.job.step(name, function, *args, **options)

    @contextmanager
    def finishing(self) -> Iterator[None]:
        """End the run in one transaction with the writes of the block to the node's database.

        Both are one transaction, so it happens exactly once, or not at all: `suspend` in the block
        undoes what that has written. After it the code only returns. In a tuple of `each` the
        others come in the next run. Raise `StaleAttemptError` if the run is over; `Snooze`, which
        puts it back, if others hold what it needs for more than five seconds.
        """
        with ending(self.job):
            yield
            bound_silence(self.job.using)  # not before: the block may take its time
            self._run.end()

    def publish(self, message: Any, channel: str | None = None) -> None:
        """Publish on the node's own channel, or on another one, when this run ends."""
        self._run.publish(channel or f"/flow/node/{self.node.pk}", message)

    def log(self, entry: Any) -> None:
        """Log a dict, a text or an exception when this run ends."""
        self._run.log(entry)

    @staticmethod
    def awaited(value: Any) -> Any:
        """Return the value of an `async def`, which is awaited, or the value itself."""
        if type(value) in _PLAIN or not inspect.isawaitable(value):  # which is slow
            return value

        async def result() -> Any:
            try:
                return await value
            except BaseExceptionGroup as group:  # of a task group, in which one has suspended
                if group.split(Suspended)[1] is not None:
                    raise
                raise Suspended from group

        return async_to_sync(result)()
