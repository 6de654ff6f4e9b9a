"""What an operator does to nodes, and what each asks for before it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.db.models import QuerySet
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from hipq_django.flow.admin.filters import STATUS_NAMES, has_failed
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.library.graph import GRAPH
from hipq_django.flow.lifecycle import runs_by_itself
from hipq_django.flow.models import Node
from hipq_django.flow.values import Rest

if TYPE_CHECKING:
    from django.utils.functional import _StrOrPromise

MAX_ANCESTORS = 50


class ConfirmForm(forms.Form):
    """What an operator confirms."""

    confirmed = forms.BooleanField(widget=forms.HiddenInput, initial="1")
    offers_ancestors: ClassVar = False

    def __init__(self, data: Any = None, *, ancestors: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(data)
        self.offer(ancestors)

    def offer(self, ancestors: Sequence[tuple[str, str]]) -> None:
        """Let failed nodes above those that are confirmed be chosen, where that is of use."""

    @property
    def first(self) -> list[int]:
        """To which other nodes it is done before."""
        return []

    @property
    def options(self) -> dict[str, bool]:
        """How it is done."""
        return {}

    @property
    def done(self) -> _StrOrPromise:
        """What was done, if the form decides about that."""
        return ""


class ForceForm(ConfirmForm):
    """Offers to run failed nodes above by force, too: no end of a child lets these go on."""

    offers_ancestors = True
    ancestors = forms.MultipleChoiceField(
        required=False,
        widget=forms.CheckboxSelectMultiple,
        label=_("Failed nodes above, to be run by force as well"),
    )

    def offer(self, ancestors: Sequence[tuple[str, str]]) -> None:
        """Let the failed nodes above be chosen; none is, by itself."""
        if ancestors:
            self.fields["ancestors"].choices = ancestors  # type: ignore[attr-defined]  # a field with choices
        else:
            del self.fields["ancestors"]

    @property
    def first(self) -> list[int]:
        """The nodes above that were chosen, from the root down."""
        return sorted(map(int, self.cleaned_data.get("ancestors", ())))


TERMINATED = {
    "node": _("Set to terminate"),
    "tree": _("Set to terminate with its tree"),
    "delete": _("Set to terminate with its tree and to be deleted"),
}


class TerminateForm(ConfirmForm):
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
    force = forms.BooleanField(
        required=False,
        label_suffix="",
        label=_("By force: cancel runs that are under way, and call no code to shut down"),
    )

    @property
    def options(self) -> dict[str, bool]:
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


@dataclass(frozen=True, slots=True)
class Verb:
    """One thing to do to a node: by which permission, when it is of use, and what follows."""

    name: str
    label: _StrOrPromise
    permission: str
    perform: Callable[..., object]
    done: _StrOrPromise
    is_of_use: Callable[[Node], bool]
    effect: _StrOrPromise
    form: type[ConfirmForm] = ConfirmForm
    is_dangerous: bool = False


VERBS = {
    verb.name: verb
    for verb in (
        Verb(
            "run", _("Run"), "run_node", _run, _("Set to run"),
            lambda node: not (needs_force(node) or node.paused),
            _("The next free worker runs a node once; if a run of it is under way, one follows."),
        ),
        Verb(
            "run_by_force", _("Run by force"), "run_node", lambda node: node.run(force=True),
            _("Set to run by force"), needs_force,
            _(
                "The next free worker runs a node that failed or is terminated once more, and from "
                "then on it runs by itself. It reads the messages that it failed at first: if "
                "neither they nor the code were corrected, it fails again."
            ),
            ForceForm,
        ),
        Verb(
            "pause", _("Pause"), "run_node", lambda node: node.pause(), _("Paused"),
            lambda node: not node.paused and node.rest != Rest.TERMINATED,
            _(
                "A paused node starts no run until somebody resumes it; messages wait on its "
                "ports. A run that is under way goes on to its end."
            ),
        ),
        Verb(
            "resume", _("Resume"), "run_node", lambda node: node.resume(), _("Resumed"),
            lambda node: node.paused,
            _(
                "A resumed node may run again, and looks at what came meanwhile. One that has "
                "failed runs by force only, as before."
            ),
        ),
        Verb(
            "terminate", _("Terminate"), "terminate_node",
            lambda node, **options: node.terminate(**options), TERMINATED["node"],
            lambda node: True,
            _(
                "A node that is terminated shuts down; it takes messages, but does not run any "
                "more. A run that is under way ends first."
            ),
            TerminateForm, is_dangerous=True,
        ),
    )
}  # fmt: skip


def failed_above(ids: Iterable[int], nodes: QuerySet[Any]) -> QuerySet[Any]:
    """Return the nodes above some others that have failed, without these."""
    asked = set(ids)
    above: set[int] = set()
    level = asked
    while level:
        parents = nodes.filter(pk__in=level, parent__isnull=False).order_by()
        level = set(parents.values_list("parent_id", flat=True)) - above
        above |= level
    failed = nodes.filter(has_failed(), pk__in=above - asked)
    return failed.exclude(job_type__name=GRAPH).order_by("pk")[:MAX_ANCESTORS]
