"""Nodes: what lasts, has ports and a state, and is run again and again."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar

from django.db import models
from django.db.models import Q
from django.db.models.fields.related_descriptors import ForwardManyToOneDescriptor
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _, pgettext_lazy

from hipq_django.conf.instances import get_instance, is_replica
from hipq_django.database.twins import method_twin, property_twin
from hipq_django.domain.redaction import Redactor
from hipq_django.flow.exceptions import NodeDeletedError
from hipq_django.flow.models import verbs
from hipq_django.flow.values import RESTS
from hipq_django.models import JobType, Queue
from hipq_django.models.base import JsonField, Row, RowKey, RowManager, no_error
from hipq_django.models.job_type import redactor_of_all

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from django.db.models.fields.related_descriptors import RelatedManager

    from hipq_django.flow.aliases import Aliases
    from hipq_django.flow.models.port import NodePort
    from hipq_django.flow.ports import Port
    from hipq_django.flow.state import State

P = ParamSpec("P")
R = TypeVar("R")

REST_NAMES = {
    "completed": _("completed"),
    "suspended": _("suspended"),
    "failed": _("failed"),
    "terminating": _("terminating"),
    "terminated": _("terminated"),
}


class NodeRow(Row):
    """The columns of a node; its verbs are those of `Node`.

    `rest` is what it is while no run is due; queued and running are told by its job, and stored
    nowhere else. `job_id` is its one live run, set by the dispatcher and cleared by the run's end,
    both under the lock of this row.
    """

    instance = models.CharField(_("instance"), max_length=100, default="default")
    queue = RowKey(
        Queue, models.PROTECT, verbose_name=_("queue"), related_name="+", db_constraint=False
    )
    job_type = RowKey(
        JobType, models.PROTECT, verbose_name=_("component"), related_name="+",
        db_index=False, db_constraint=False,
    )  # fmt: skip
    args = JsonField(_("arguments"), default=list, blank=True)
    parent = RowKey(
        "self",
        models.PROTECT,
        verbose_name=pgettext_lazy("node", "parent"),
        related_name="child_rows",
        null=True,
        blank=True,
        db_index=False,
    )
    name = models.CharField(_("name"), max_length=200, default="", blank=True)
    created_by = models.CharField(_("created by"), max_length=200, default="", blank=True)
    rest = models.CharField(
        _("rest"),
        max_length=11,
        choices=[(rest, REST_NAMES[rest]) for rest in RESTS],
        default="completed",
    )
    paused = models.BooleanField(_("paused"), default=False)
    doomed = models.BooleanField(
        _("doomed"), default=False, help_text=_("Deleted once its tree is terminated.")
    )
    # The job may be pruned before it is looked at.
    job_id: models.BigIntegerField[int | None, int | None] = models.BigIntegerField(
        _("current run"), null=True
    )
    run_time = models.DateTimeField(
        _("run time"), null=True, help_text=_("When its run is due, if an alarm set it.")
    )
    alarm = models.DateTimeField(
        _("alarm"), null=True, help_text=_("When to run it again after the run that is due now.")
    )
    wakes = models.BigIntegerField(_("wakes"), default=0)
    runs = models.BigIntegerField(_("runs"), default=0)
    started = models.BooleanField(_("started"), default=False)
    ran_time = models.DateTimeField(_("last run"), null=True)
    rate_time = models.DateTimeField(_("rate time"), default=timezone.now)
    state_values = JsonField(_("state"), default=dict, blank=True)
    pending = JsonField(_("pending"), default=dict, blank=True)
    job_options = JsonField(_("job options"), default=dict, blank=True)
    error = JsonField(_("error"), default=no_error, blank=True)
    lock_token = models.CharField(_("lock token"), max_length=40, default="", blank=True)
    lock_until = models.DateTimeField(_("locked until"), null=True)
    lock_attempt = models.BigIntegerField(
        _("attempt put back"),
        default=0,
        help_text=_("The attempt of its current run that the lock has put back."),
    )
    create_time = models.DateTimeField(_("create time"), default=timezone.now)
    update_time = models.DateTimeField(_("update time"), default=timezone.now)

    if TYPE_CHECKING:
        id: int
        pk: int
        parent_id: int | None
        queue_id: int
        job_type_id: int
        ports: RelatedManager[NodePort]

    class Meta:
        abstract = True
        base_manager_name = "objects"
        verbose_name = _("node")
        verbose_name_plural = _("nodes")
        permissions: ClassVar = [
            ("start_node", "Can start nodes"),
            ("run_node", "Can run, pause and resume nodes"),
            ("terminate_node", "Can terminate and delete nodes"),
            ("edit_node", "Can change the state, ports and family of nodes"),
            ("edit_graph", "Can change the graphs of nodes"),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["parent", "name"],
                condition=Q(parent__isnull=False),
                name="hipq_flow_node_name_unique",
            ),
            models.CheckConstraint(
                condition=(Q(parent__isnull=True) & Q(name=""))
                | (Q(parent__isnull=False) & ~Q(name="")),
                name="hipq_flow_node_child_has_name",
            ),
            models.CheckConstraint(
                condition=Q(parent__isnull=True) | ~Q(parent=models.F("id")),
                name="hipq_flow_node_not_own_parent",
            ),
            models.CheckConstraint(
                condition=Q(rest__in=RESTS) & (~Q(rest="terminated") | Q(job_id__isnull=True)),
                name="hipq_flow_node_rest",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["job_type", "id"], name="hipq_flow_node_type"),
            models.Index(
                fields=["job_id"],
                condition=Q(job_id__isnull=False),
                name="hipq_flow_node_job",
            ),
            models.Index(fields=["id"], condition=Q(doomed=True), name="hipq_flow_node_doomed"),
            # For operators: roots, and what has failed, found among all the others.
            models.Index(
                fields=["id"], condition=Q(parent__isnull=True), name="hipq_flow_node_root"
            ),
            models.Index(
                fields=["parent", "id"],
                condition=Q(rest__in=["failed"]),
                name="hipq_flow_node_failed",
            ),
        ]


class Alias(Row):
    """Another name of a node, by which it is found: it begins with a letter, as no id does.

    The code refuses others, and PostgreSQL does so once more.
    """

    instance = models.CharField(_("instance"), max_length=100, default="default")
    name = models.CharField(_("name"), max_length=200)
    node = RowKey(
        "hipq_flow.Node", models.CASCADE, verbose_name=_("node"), related_name="alias_rows"
    )

    objects: ClassVar[RowManager[Self]] = RowManager()

    if TYPE_CHECKING:
        node_id: int

    class Meta:
        base_manager_name = "objects"
        verbose_name = _("alias")
        verbose_name_plural = _("aliases")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["instance", "name"], name="hipq_flow_alias_unique"),
        ]

    def __str__(self) -> str:
        return self.name


class NodeQuerySet(models.QuerySet["Node"]):
    """The questions that are asked about nodes."""

    def row_of(self, node: Node) -> NodeQuerySet:
        """The row of a node, and no other one.

        Where the transaction that started a node was rolled back, SQLite gives its id to another.
        """
        return self.filter(pk=node.pk, create_time=node.create_time)


def deleted(node: Node) -> NodeDeletedError:
    """Return the error for a node that is gone."""
    return NodeDeletedError(
        f"{node} was deleted, or the transaction that started it was rolled back."
    )


def _when_run_ends(
    verb: Callable[Concatenate[Node, P], R],
) -> Callable[Concatenate[Node, P], R]:
    """Let a verb be done when the run ends that has read the node as one of its family."""
    takes = signature(verb)

    @wraps(verb)
    def call(self: Node, /, *args: P.args, **options: P.kwargs) -> R:
        if self.of_run is None:
            return verb(self, *args, **options)
        takes.bind(self, *args, **options)  # what cannot be called raises now
        known: R = self.of_run.ask(self, verb.__name__, *args, **options)
        return known

    return call


class Node(NodeRow):
    """A node: a long-lived thing with ports, a state, a parent and children.

    Each property and method reads the database, so a node that was fetched long ago tells what is
    so now. What was deleted raises `NodeDeletedError`.
    """

    of_run: Any = None
    """The run of a relative that this was read by: what is done through it is done by the run."""

    objects = RowManager.from_queryset(NodeQuerySet)()

    class Meta(NodeRow.Meta):
        pass

    @cached_property
    def redactor(self) -> Redactor:
        """What masks the sensitive fields of all job types: messages go from tree to tree."""
        return redactor_of_all(self.instance, self.using)

    def learn(self, *values: Any) -> None:
        """Remember the sensitive values in these: its errors and its log may quote them."""
        self.redactor = self.redactor.knowing(*values)

    def __str__(self) -> str:
        return f"node {self.pk}"

    @property
    def using(self) -> str:
        """The database of its instance, also where a router has read it from a replica."""
        own = super().using
        return get_instance(self.instance).database if is_replica(own) else own

    # What it is

    @property
    def status(self) -> str:
        """queued, running, suspended, completed, failed, terminating or terminated."""
        return verbs.status_of(self)

    @property
    def info(self) -> dict[str, Any]:
        """Its component, queue and arguments, who created it, and when it was run last."""
        return verbs.info_of(self)

    def exists(self) -> bool:
        """Return whether it was not deleted."""
        return Node.objects.using(self.using).row_of(self).exists()

    @property
    def aliases(self) -> Aliases:
        """The other names of the node."""
        return verbs.Aliases(self)

    @property
    def state(self) -> State:
        """The values that the node keeps."""
        return verbs.State(self)

    # Ports

    @property
    def inputs(self) -> Mapping[str, Port]:
        """Its in-ports, by their names."""
        return verbs.Ports(self, "in")

    @property
    def outputs(self) -> Mapping[str, Port]:
        """Its out-ports, by their names."""
        return verbs.Ports(self, "out")

    @_when_run_ends
    def set_ports(
        self,
        inputs: Mapping[str, Mapping[str, Any]] | None = None,
        outputs: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Give the node the ports of its component and these; others go, with their messages.

        A side that is None stays as it is.
        """
        verbs.set_ports(self, inputs, outputs)

    # Running

    @_when_run_ends
    def run(
        self,
        *,
        parent: bool = False,
        force: bool = False,
        at: datetime | float | None = None,
        wait: float | None = None,
    ) -> Node | None:
        """Let it run, now or `at` a moment or after some seconds; return the node that will run.

        That is None if it failed or is terminated, unless `force` is given, and with `parent=True`
        if it has none.
        """
        return verbs.run(self, parent=parent, force=force, at=at, wait=wait)

    @_when_run_ends
    def terminate(
        self, *, recursive: bool = False, delete: bool = False, force: bool = False
    ) -> Node:
        """Let it shut down: with its children if `recursive`, and then delete the tree.

        With `force=True` a live run is cancelled, and none of its code is called any more.
        """
        return verbs.terminate(self, recursive=recursive, delete=delete, force=force)

    def is_terminated(self) -> bool:
        """Return whether the node and all below it are terminated."""
        return verbs.is_terminated(self)

    @_when_run_ends
    def pause(self) -> None:
        """Let it not run until it is resumed; messages wait."""
        verbs.pause(self)

    @_when_run_ends
    def resume(self) -> None:
        """Let it run again."""
        verbs.resume(self)

    @_when_run_ends
    def lock(self, ttl: float, *, retries: int = 3, retry_delay: float = 0.2) -> str | None:
        """Keep it from running for some seconds; return the token, or None if it is not free."""
        return verbs.lock(self, ttl, retries=retries, retry_delay=retry_delay)

    @_when_run_ends
    def refresh_lock(self, ttl: float) -> bool:
        """Let the lock last for some seconds from now; return whether there is one."""
        return verbs.refresh_lock(self, ttl)

    @_when_run_ends
    def unlock(self, token: str) -> bool:
        """Give the lock back; return whether this was its token."""
        return verbs.unlock(self, token)

    def is_idle(self) -> bool:
        """Return whether nothing is queued, running or unread in its tree."""
        return verbs.is_idle(self)

    # Family

    def child(self, name: str) -> Node | None:
        """Return the child of a name, or None."""
        nodes = Node.objects.using(self.using)
        row = nodes.filter(parent__in=nodes.row_of(self), name=name).first()
        if row is None and not self.exists():
            raise deleted(self)
        return row and read_by(self.of_run, row)

    @property
    def children(self) -> dict[str, Node]:
        """Its children, by their names."""
        nodes = Node.objects.using(self.using)
        rows = nodes.filter(parent__in=nodes.row_of(self)).order_by("pk")
        found = {row.name: read_by(self.of_run, row) for row in rows}
        if not (found or self.exists()):
            raise deleted(self)
        return found

    @_when_run_ends
    def spawn(self, /, name: str, component: Any, **options: Any) -> Node:
        """Start a node below this one; options are those of `flow.start`."""
        of_this = {"parent": self, "name": name, "by": ""}
        return verbs.start(component, **{"instance": self.instance, **options, **of_this})

    @_when_run_ends
    def apply(self, spec: Mapping[str, Any]) -> None:
        """Let a graph be as a new spec says; raise `GraphError` with all that is wrong with it."""
        verbs.apply(self, spec)

    @property
    def graph(self) -> Any:
        """The spec of a graph, or None."""
        rows = Node.objects.using(self.using).row_of(self)
        values = rows.values_list("state_values", flat=True).first()
        if values is None:
            raise deleted(self)
        return values.get("flow.spec")

    @_when_run_ends
    def adopt(self, orphan: Node, name: str) -> None:
        """Take a node that has no parent as a child."""
        verbs.adopt(self, orphan, name)

    @_when_run_ends
    def disown(self, child: Node | str) -> None:
        """Let a child go on without a parent."""
        verbs.disown(self, child)

    @_when_run_ends
    def delete(  # type: ignore[override]  # the tree, and only where it is terminated
        self, *args: Any, **kwargs: Any
    ) -> bool:
        """Delete the node and all below it; return False if not all of them are terminated."""
        return verbs.delete(self)

    @_when_run_ends
    def publish(self, message: Any) -> None:
        """Publish a message on the node's own channel, `/flow/node/ID`."""
        if not self.exists():
            raise deleted(self)
        verbs.publish(f"/flow/node/{self.pk}", message, instance=self.instance)

    # In async code

    aexists = method_twin(exists)
    aset_ports = method_twin(set_ports)
    arun = method_twin(run)
    aterminate = method_twin(terminate)
    ais_terminated = method_twin(is_terminated)
    apause = method_twin(pause)
    aresume = method_twin(resume)
    alock = method_twin(lock)
    arefresh_lock = method_twin(refresh_lock)
    aunlock = method_twin(unlock)
    ais_idle = method_twin(is_idle)
    achild = method_twin(child)
    aapply = method_twin(apply)
    aadopt = method_twin(adopt)
    adisown = method_twin(disown)
    apublish = method_twin(publish)
    aspawn = method_twin(spawn)
    adelete = method_twin(delete)  # type: ignore[arg-type]  # the tree, as `delete`

    @property_twin
    def astatus(self) -> str:
        """Return `status` in async code."""
        return self.status

    @property_twin
    def ainfo(self) -> dict[str, Any]:
        """Return `info` in async code."""
        return self.info

    @property_twin
    def achildren(self) -> dict[str, Node]:
        """Return `children` in async code."""
        return self.children

    @property_twin
    def agraph(self) -> Any:
        """Return `graph` in async code."""
        return self.graph


def read_by(run: Any, node: Node) -> Node:
    """Return a node as a run has reached it, or as it is outside of runs if that is None."""
    node.of_run = run
    if run is not None:
        run.learn(node.args)
    return node


class _ParentOf(ForwardManyToOneDescriptor):  # type: ignore[type-arg]  # a class of Django
    """Gives the parent that a node has now, as one of the family of the same run."""

    def __get__(self, instance: Any, cls: Any = None) -> Any:
        """Return the parent, which others may have changed since the row was read."""
        if instance is not None and instance.pk:
            rows = Node.objects.using(instance.using).row_of(instance)
            found = list(rows.values_list("parent", flat=True))
            if not found:
                raise deleted(instance)
            if found[0] != instance.parent_id:
                instance.parent_id = found[0]  # and forget the other one
        return super().__get__(instance, cls)

    def get_object(self, instance: Any) -> Any:
        """Return the parent's row."""
        return read_by(instance.of_run, super().get_object(instance))  # type: ignore[arg-type]  # of the stubs


Node.parent = _ParentOf(Node._meta.get_field("parent"))  # type: ignore[assignment]  # as Django does
