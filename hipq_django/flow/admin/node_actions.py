"""What an operator does to nodes, and what all pages of nodes share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django import forms
from django.db.models import QuerySet
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from hipq_django.admin.row_actions import RowActions, Verb, VerbForm, by_name, tick_box
from hipq_django.flow.admin.filters import STATUS_NAMES, has_failed
from hipq_django.flow.admin.node_links import NodeLinks, label_of
from hipq_django.flow.admin.node_list import name_rows, shown_rows
from hipq_django.flow.admin.standing import badges, note
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.library.graph import GRAPH
from hipq_django.flow.lifecycle import runs_by_itself
from hipq_django.flow.models import Node
from hipq_django.flow.values import Rest

if TYPE_CHECKING:
    from django.utils.functional import _StrOrPromise

MAX_ANCESTORS = 50


class ForceForm(VerbForm):
    """Offers to run failed nodes above by force, too: no end of a child lets these go on."""

    ancestors = forms.MultipleChoiceField(
        required=False,
        widget=forms.CheckboxSelectMultiple,
        label=_("Failed nodes above, to be run by force as well"),
    )

    def offer(self, rows: Sequence[Node]) -> None:
        """Let the failed nodes above be chosen; none is, by itself."""
        failed = _named_rows(_failed_above(rows)) if rows else []
        if failed:
            choices = [(str(row.pk), label_of(row, row.label)) for row in failed]
            self.fields["ancestors"].choices = choices  # type: ignore[attr-defined]  # a field with choices
        else:
            del self.fields["ancestors"]

    @property
    def options(self) -> dict[str, Any]:
        """Nothing: the nodes above are run before, each by itself."""
        return {}

    @property
    def first(self) -> list[int]:
        """The nodes above that were chosen, from the root down."""
        return sorted(map(int, self.cleaned_data.get("ancestors", ())))


TERMINATED = {
    "node": _("Set to terminate"),
    "tree": _("Set to terminate with its tree"),
    "delete": _("Set to terminate with its tree and to be deleted"),
}


class TerminateForm(VerbForm):
    """How much of a tree is terminated, and how."""

    extent = forms.ChoiceField(
        choices=[
            ("node", _("This node: its children go on")),
            ("tree", _("With all nodes below it")),
            ("delete", _("With all nodes below it; then delete them with their messages and log")),
        ],
        initial="node",
        widget=forms.RadioSelect,
        label=_("What to terminate"),
    )
    force = tick_box(_("By force: cancel runs that are under way, and call no code to shut down"))

    @property
    def options(self) -> dict[str, Any]:
        """What `Node.terminate` is called with."""
        extent = self.cleaned_data["extent"]
        return {
            "recursive": extent != "node",
            "delete": extent == "delete",
            "force": self.cleaned_data["force"],
        }

    @property
    def done(self) -> _StrOrPromise:
        """What was done, as far as it reached."""
        done = TERMINATED[self.cleaned_data["extent"]]
        return format_lazy("{} {}", done, _("by force")) if self.cleaned_data["force"] else done


def _run(node: Node) -> None:
    if node.run() is None:
        raise FlowError(
            _("it is %(rest)s, and runs by force only.") % {"rest": STATUS_NAMES[node.rest]}
        )


def needs_force(node: Node) -> bool:
    """Whether it runs by force only: a failed graph goes on as soon as its children do."""
    return not runs_by_itself(node.rest, node.job_type.name)


USELESS = _("there is nothing to do.")

VERBS = by_name(
    Verb(
        "run", _("Run"), "run_node", _run, _("Set to run"), _("Run the selected nodes …"),
        is_of_use=lambda node, now: not (needs_force(node) or node.paused),
        useless=USELESS,
        warning=lambda node: _(
            "The next free worker runs a node once; if a run of it is under way, one follows."
        ),
    ),
    Verb(
        "run_by_force", _("Run by force"), "run_node", lambda node: node.run(force=True),
        _("Set to run by force"), _("Run the selected nodes by force …"),
        is_of_use=lambda node, now: needs_force(node),
        useless=USELESS,
        warning=lambda node: _(
            "The next free worker runs a node that failed or is terminated once more, and from "
            "then on it runs by itself. It reads the messages that it failed at first: if "
            "neither they nor the code were corrected, it fails again."
        ),
        form=ForceForm,
    ),
    Verb(
        "pause", _("Pause"), "run_node", lambda node: node.pause(), _("Paused"),
        _("Pause the selected nodes …"),
        is_of_use=lambda node, now: not node.paused and node.rest != Rest.TERMINATED,
        useless=USELESS,
        warning=lambda node: _(
            "A paused node starts no run until somebody resumes it; messages wait on its "
            "ports. A run that is under way goes on to its end."
        ),
    ),
    Verb(
        "resume", _("Resume"), "run_node", lambda node: node.resume(), _("Resumed"),
        _("Resume the selected nodes …"),
        is_of_use=lambda node, now: node.paused,
        useless=USELESS,
        warning=lambda node: _(
            "A resumed node may run again, and looks at what came meanwhile. One that has "
            "failed runs by force only, as before."
        ),
    ),
    Verb(
        "terminate", _("Terminate"), "terminate_node",
        lambda node, **options: node.terminate(**options), TERMINATED["node"],
        _("Terminate the selected nodes …"),
        warning=lambda node: _(
            "A node that is terminated shuts down; it takes messages, but does not run any "
            "more. A run that is under way ends first."
        ),
        form=TerminateForm,
        is_dangerous=True,
    ),
)  # fmt: skip


class NodeActions(NodeLinks, RowActions):
    """The actions of the list and the buttons of a node's page: each asks before it is done."""

    actions: Any = tuple(VERBS)
    verbs = VERBS
    asks_on_page = False
    names_all = True
    confirm_template = "hipq_flow/admin/confirm.html"

    def confirm_rows(self, rows: Sequence[Node], verb: Verb) -> list[Any]:
        """Return the lines of the table of nodes."""
        nodes = Node.objects.using(self.database).filter(pk__in=[row.pk for row in rows])
        return [
            {
                "link": self.link(Node, row.pk, row.label),
                "badges": badges(row, self.now),
                "note": note(row, self.now),
                "component": row.job_type.name,
                "is_left": not verb.is_of_use(row, self.now),
            }
            for row in _named_rows(nodes.order_by("pk"))
        ]

    def url_after(self, row: Node, result: Any) -> str:
        """Return the address of the node, or of the list where it was deleted."""
        return self.row_url(row) if row.exists() else self.url(Node, "changelist")


def _failed_above(nodes: Sequence[Node]) -> QuerySet[Any]:
    """Return the nodes above some others that have failed, without these."""
    rows, asked = Node.objects.using(nodes[0].using), {node.pk for node in nodes}
    above: set[int] = set()
    level = asked
    while level:
        parents = rows.filter(pk__in=level, parent__isnull=False).order_by()
        level = set(parents.values_list("parent_id", flat=True)) - above
        above |= level
    failed = rows.filter(has_failed(), pk__in=above - asked)
    return failed.exclude(job_type__name=GRAPH).order_by("pk")[:MAX_ANCESTORS]


def _named_rows(nodes: QuerySet[Any]) -> list[Any]:
    rows = list(shown_rows(nodes))
    name_rows(rows, nodes.db)
    return rows
