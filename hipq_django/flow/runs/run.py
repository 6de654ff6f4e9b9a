"""One run of a node: the rows it has loaded, and its effects so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from django.utils.functional import cached_property

from hipq_django.api.building import Builder
from hipq_django.database import clock
from hipq_django.domain.drafts import NewJob, split_options
from hipq_django.domain.redaction import Redactor
from hipq_django.domain.serialization import to_json
from hipq_django.domain.states import Phase
from hipq_django.exceptions import InvalidJobError
from hipq_django.flow.contexts import Entry, current_context, current_group
from hipq_django.flow.declared_ports import (
    PortOptions,
    checked_channel,
    checked_message,
)
from hipq_django.flow.declaring import ComponentDeclaration, find_component
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.lifecycle import moment_of
from hipq_django.flow.logs import group_entry, log_entry, stores_data
from hipq_django.flow.models import Node, NodePort
from hipq_django.flow.models.node import read_by
from hipq_django.flow.ports import Port, Ports, check_known_name
from hipq_django.flow.publishing import LOG_CHANNEL
from hipq_django.flow.runs import verbs
from hipq_django.flow.runs.ports import InRun
from hipq_django.flow.runs.unread import UnreadMessages, Volume
from hipq_django.flow.runs.verbs import kept_options
from hipq_django.flow.settings import flow_settings
from hipq_django.flow.state import State, own_values, stored_values
from hipq_django.flow.statements import UnreadMessage
from hipq_django.flow.values import MAX_VOLUME, Effects, PortName, Write
from hipq_django.job_types.registry import sensitive_fields
from hipq_django.models.catalog import get_job_type
from hipq_django.transitions.values import Claim, Result

if TYPE_CHECKING:
    from hipq_django.flow.settings import FlowSettings


def _nothing() -> None:
    """Do nothing; the end of a run whose code is not called."""


class Run:
    """One run. It is made by the scheduler, used by one thread, and ended by the scheduler."""

    has_run = False
    """Whether its code was called; the run of a node that must not run does nothing."""
    waits_for_lock = False
    """Whether it is put back because somebody has locked the node."""
    is_suspended = False
    _open_tuples = 0
    """The depth of nested loops over `each`."""
    rest = ""
    """The rest of its node after the run, if the code sets one."""
    entry: Entry | None = None
    """The data read and written since the last log entry; None if data is not logged."""
    in_flight: list[int] | None = None
    """The ids of the messages of the current tuple of `each`, nested loops included."""
    read_before: Sequence[int] = ()
    """The ids of the messages read before it waited for its answer; they still lie there."""

    instead: Result | None = None
    """What is written instead of its result; then nothing counts that the run did."""

    def __init__(self, claim: Claim, node: Node | None) -> None:
        self.claim = claim
        data = claim.job.job_data  # read before the code, which may take its own out of it
        self.node_id, self.is_shutdown = int(data["node"]), bool(data.get("shutdown"))
        """The id of its node, and whether it is the node's shutdown."""
        self._node = node
        self.wakes_seen = node.wakes if node else 0
        """How often the node had been woken when its messages were read."""
        self.done = Effects()
        """The effects up to the last mark: they count even if the code raises."""
        self._doing = Effects()
        self.volume = Volume()
        self.end: Callable[[], None] = _nothing
        """Ends the run at once, in the open transaction; the companion sets it."""
        self.again: list[datetime | None] = []
        self.wants_end: dict[str, bool] = {}
        self.rows: dict[PortName, NodePort] = {}
        self.unread: dict[PortName, UnreadMessages] = {}
        self._opened: dict[PortName, Port] = {}
        self.defaults: dict[int, UnreadMessage] = {}
        """The newest messages that are defaults, by the ids of their ports."""

    @property
    def node(self) -> Node:
        """The node's row as it was when the run was loaded."""
        assert self._node is not None  # noqa: S101 - for type checkers
        return self._node

    @property
    def exists(self) -> bool:
        """Whether the node was there when the run was loaded."""
        return self._node is not None

    @property
    def is_stale(self) -> bool:
        """Whether the node is gone, or has another run."""
        return self._node is None or self._node.job_id != self.claim.id

    @property
    def has_started(self) -> bool:
        """Whether `startup` was called, in this run or before."""
        return self.node.started or self.done.started or self.doing.started

    @property
    def using(self) -> str:
        """The database."""
        return self.node.using

    @cached_property
    def declared(self) -> ComponentDeclaration:
        """The component."""
        job_type = self.claim.snapshot.job_type
        return find_component(job_type.instance, job_type.name)

    @cached_property
    def settings(self) -> FlowSettings:
        """The settings of flows."""
        return flow_settings(self.node.instance)

    # Secrets

    @cached_property
    def _sensitive(self) -> Redactor:
        """A redactor of the sensitive fields of this release and of the one in the database."""
        return Redactor((*sensitive_fields(self.node.instance), *self.claim.redactor.fields))

    @cached_property
    def _secrets(self) -> set[str]:
        """The sensitive values that the code was given or has read."""
        claim = self.claim
        given = (self.node.args, self.node.state_values, claim.response, claim.job.job_data)
        return {*self._sensitive.knowing(*given).secrets}

    def learn(self, *values: Any) -> None:
        """Remember the sensitive values in data that the code has read or made."""
        if self._sensitive.fields:
            self._secrets.update(self._sensitive.knowing(*values).secrets)

    @property
    def redactor(self) -> Redactor:
        """What masks the sensitive values that the code has seen."""
        return Redactor(self._sensitive.fields, frozenset(self._secrets))

    def mask_errors(self) -> None:
        """Mask the sensitive values that the code has seen in errors of this run."""
        if self.exists and self._secrets:
            self.claim.job.known = self.redactor

    @property
    def doing(self) -> Effects:
        """The effects since the last mark; raise `FlowError` once the run has ended."""
        self.check_open()
        return self._doing

    def check_open(self) -> None:
        """Raise `FlowError` once the run has ended, although its code goes on."""
        if self.claim.job.has_finished:
            raise FlowError("this run has ended by finishing; return from perform.")

    # Marks

    def mark(self) -> None:
        """Keep the effects so far, also if the code raises later."""
        self.log_data()
        self.done.add(self.doing)
        self._doing = Effects()
        self.in_flight = None

    def everything(self) -> Effects:
        """Return all effects so far, without a mark.

        The end of a run that cannot be written becomes a failure, of which only marks count.
        """
        self.log_data()
        effects = Effects()
        effects.add(self.done)
        effects.add(self.doing)
        return effects

    def forget(self) -> None:
        """Drop all effects."""
        self.done, self._doing = Effects(), Effects()
        if self.entry is not None:
            self.entry = Entry(is_stored=self.entry.is_stored)

    def go_on_from(self, effects: Effects) -> None:
        """Continue with the effects of the part of the run before its answer."""
        self._doing = effects
        acts = [[a.value, a.context] if isinstance(a, Write) else a for a in effects.acts]
        self.learn(effects.state, acts)
        self.read_before = tuple(effects.taken)
        for unread in self.unread.values():
            unread.pass_over(self.read_before)

    @contextmanager
    def one_tuple(self) -> Iterator[None]:
        """Treat the messages read in the block as one tuple, also in the log.

        The code may leave it, with its loop, before the tuple is complete.
        """
        self.log_data()
        if not self._open_tuples:
            self.in_flight = []
        self._open_tuples += 1
        try:
            yield
        finally:
            self._open_tuples -= 1

    def end_tuple(self) -> bool:
        """Set a mark, but not inside another tuple, which is not complete yet.

        Nor after an answer: what was done with that counts as a whole. Another attempt begins with
        the same answer, and would do once more what is before a mark. Return whether the run goes
        on: with this tuple the code may have ended it by `finishing`.
        """
        if self.claim.job.has_finished:
            return False
        self.log_data()
        if self._open_tuples:
            return True
        self.in_flight = None
        if self.claim.phase is not Phase.RESPONSE:
            self.mark()
        return True

    def leave_others(self) -> None:
        """Run the node again if messages are left that the code could not read.

        They woke the node only once. The code could not read on if it ended the run in a tuple of
        `each`, or took messages and waited for its answer. A run that took none is not repeated:
        it might ask for ever.
        """
        if (self.in_flight or self.read_before) and any(self.unread.values()):
            self.run_again()

    def turns(self) -> Iterator[None]:
        """Yield once for each tuple of messages that this run may take."""
        most = self.volume.bytes + MAX_VOLUME
        for _ in range(self.declared.batch):
            yield
            if self.volume.bytes > most:
                return

    # Ports

    @cached_property
    def inputs(self) -> Ports:
        """The in-ports of the node."""
        return Ports(self.node, "in", self)

    @cached_property
    def outputs(self) -> Ports:
        """The out-ports of the node."""
        return Ports(self.node, "out", self)

    def opened(self, node: Node, direction: str, name: str) -> Port:
        """Return a port of the node or of a relative, the same object each time."""
        if not isinstance(name, str):
            check_known_name(name)
        place = PortName(node.pk, direction, name)
        port = self._opened.get(place)
        if port is None:
            port = Port(node, direction, name, sink=partial(InRun, self))
            port.row  # noqa: B018 - raises where there is none
            self._opened[place] = port
        return port

    # State

    @cached_property
    def state(self) -> State:
        """The state as this run sees it."""
        return State(self.node, self)

    def state_values(self, node: Node) -> dict[str, Any]:
        """Return the state of the node with the changes of this run, or that of a relative."""
        if node is self.node:
            return self.state_now()
        values = stored_values(node)
        self.learn(own_values(values))
        return values

    def state_now(self) -> dict[str, Any]:
        """Return all values of the state with the changes of this run."""
        return self.doing.changed(self.done.changed(self.node.state_values))

    # Family

    def parent(self) -> Node | None:
        """Return the parent, which may be gone since the run was loaded."""
        found = Node.objects.using(self.using).filter(pk=self.node.parent_id or 0).first()
        return found and self.relative(found)

    def relative(self, node: Node) -> Node:
        """Return a node whose verbs are done when the run ends."""
        return read_by(self, node)

    def rests_of_children(self) -> set[str]:
        """Return the rests of the children."""
        rows = Node.objects.using(self.using).filter(parent=self.node.pk)
        return set(rows.values_list("rest", flat=True).distinct())

    def ask(self, node: Node, verb: str, /, *args: Any, **options: Any) -> Any:
        """Note a verb of the node, or of a relative; return as much of the answer as is known."""
        return verbs.ask(self, node, verb, *args, **options)

    def enqueue(self, job_type: str, job_data: Any, options: Mapping[str, Any]) -> None:
        """Note a job to be enqueued; raise `InvalidJobError` for one that cannot be."""
        of_job, how = split_options(job_type, options)
        if unfit := {"after", "on", "batch"} & options.keys():
            raise InvalidJobError(f"enqueue: a run cannot give {', '.join(sorted(unfit))}.")
        new = NewJob(job_type, job_data, **of_job)
        Builder(self.node.instance, get_job_type).build(new)
        self.learn(job_data)
        kept = to_json(of_job | how | kept_options(new))
        self.note("enqueue", job_type, to_json(job_data), **kept)

    def note(self, verb: str, /, *args: Any, **options: Any) -> None:
        """Note something that is done when the run ends."""
        self.doing.acts.append((verb, list(args), options))

    # Its own future

    def run_again(self, *, at: datetime | float | None = None, wait: float | None = None) -> None:
        """Ask for one more run of the node."""
        self.check_open()
        self.again.append(moment_of(at, wait, clock.now(self.using)))

    def terminate(self, *, recursive: bool = False, delete: bool = False) -> None:
        """Ask for the shutdown of the node."""
        self.check_open()
        self.wants_end = {
            "recursive": recursive or self.wants_end.get("recursive", False),
            "delete": delete or self.wants_end.get("delete", False),
        }

    # Publications and the log

    def publish(self, channel: str, message: Any) -> None:
        """Note a message for a channel."""
        name = checked_channel(channel)
        value = checked_message(message, PortOptions(name), self.settings.max_message_bytes)
        group, context = current_group(), current_context()
        self.learn(value, context)
        how = group.as_default, group.notify, group.log
        self.doing.acts.append(Write(name, value, context, *how))

    def log(self, entry: Any) -> None:
        """Note a log entry."""
        self.doing.logs.append(log_entry(entry))

    def begin_log(self, *, is_heard: bool) -> None:
        """Begin to log data if the settings say so, or if somebody listens (`is_heard`)."""
        is_stored = stores_data(self.node.instance, self.claim.snapshot.job_type.name)
        if is_stored or is_heard:
            self.entry = Entry(is_stored=is_stored)

    def log_data(self) -> None:
        """Write one log entry of the data read and written since the last one."""
        if not self.entry:  # most have none
            return
        entry, self.entry = self.entry, Entry(is_stored=self.entry.is_stored)
        if entry.is_stored:
            self.doing.logs.append(group_entry(entry))
        else:
            self.doing.acts.append(Write(LOG_CHANNEL, group_entry(entry), log=False))
