"""`manage.py hipq_flow`: starts, runs, terminates and shows nodes, and checks specs of graphs."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from django.core.management.base import CommandError
from django.db.models import QuerySet
from django.utils.translation import override

from hipq_django.flow.aliases import get
from hipq_django.flow.exceptions import NodeDeletedError
from hipq_django.flow.explaining import explain, with_unread
from hipq_django.flow.graphs.applying import start
from hipq_django.flow.graphs.checking import check
from hipq_django.flow.graphs.problem import errors_of
from hipq_django.flow.models import Message, Node
from hipq_django.flow.status import derived, with_status
from hipq_django.management.instance_command import InstanceCommand
from hipq_django.monitoring.counts import capped_count, format_count

MOST_NODES = 1_000
NAME = (
    "A node's id or alias; start: a component, a graph or a file; check: a file, or - for a pipe."
)


class Command(InstanceCommand):
    """Each verb is the function, or method of nodes, of the same name."""

    help = "Show, start, run or terminate nodes; check the spec of a graph."
    takes: ClassVar = {
        "show": ("name", "--json"),
        "start": ("name", "--alias", "--args"),
        "run": ("name", "--force"),
        "terminate": ("name", "--tree", "--force"),
        "check": ("name", "--json"),
    }
    kept_as: ClassVar = {"--args": "given"}  # Django has `args` for what has no name

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        super().add_arguments(parser)
        parser.add_argument("verb", nargs="?", default="show", choices=list(self.takes))
        parser.add_argument("name", nargs="?", help=NAME)
        parser.add_argument("--alias", help="start: a name by which the node is found.")
        parser.add_argument(
            "--args", dest="given", default="[]", help="start: arguments as a JSON list."
        )
        parser.add_argument(
            "--force",
            action="store_true",
            help="run: even a node that failed or is terminated; terminate: without its code.",
        )
        parser.add_argument(
            "--tree", action="store_true", help="terminate: also all nodes below this one."
        )
        parser.add_argument("--json", action="store_true", help="show, check: print JSON.")

    def run(self, options: dict[str, Any]) -> None:
        """Do what the verb says."""
        if options["verb"] != "show" and not options["name"]:
            raise CommandError(f"{options['verb']}: give a name. {NAME}")
        getattr(self, f"_{options['verb']}")(options)

    def _node(self, options: dict[str, Any]) -> Node:
        return get(options["name"], instance=self.config.name)

    def _show(self, options: dict[str, Any]) -> None:
        nodes = Node.objects.using(self.config.database).filter(instance=self.config.name)
        top = {"pk": self._node(options).pk} if options["name"] else {"parent": None}
        trees = _trees(nodes.filter(**top), explains_all=options["json"])
        if options["json"]:
            self.stdout.write(json.dumps(trees, indent=2))
            return
        lines = [line for tree in trees for line in _lines(tree, 0)]
        self.stdout.write("\n".join(lines or ["no nodes"]))

    def _start(self, options: dict[str, Any]) -> None:
        name = options["name"]
        what = _read(name) if name == "-" or name.endswith(".json") else name
        args = _parsed(options["given"], "--args")
        if not isinstance(args, list):
            raise CommandError(f"start: --args {options['given']!r:.100}: give a JSON list.")
        node = start(
            what, args=args, alias=options["alias"], by="hipq_flow", instance=self.config.name
        )
        self.stdout.write(f"{node}: {node.status}")

    def _run(self, options: dict[str, Any]) -> None:
        node = self._node(options)
        if node.run(force=options["force"]) is None:
            raise CommandError(f"{node} is {node.status}: it runs by force only, --force.")
        self.stdout.write(f"{node}: {node.status}")

    def _terminate(self, options: dict[str, Any]) -> None:
        node = self._node(options)
        node.terminate(recursive=options["tree"], force=options["force"])
        self.stdout.write(f"{node}: {node.status}")

    def _check(self, options: dict[str, Any]) -> None:
        problems = check(_read(options["name"]), instance=self.config.name)
        errors = errors_of(problems)
        if options["json"]:
            self.stdout.write(json.dumps([problem._asdict() for problem in problems], indent=2))
        else:
            lines = [] if errors else ["no problems"]
            self.stdout.write("\n".join([*map(str, problems), *lines]))
        if errors:
            count = f"{len(errors)} problems" if len(errors) > 1 else "1 problem"
            raise CommandError(f"{options['name']}: {count}.")


def _read(name: str) -> Any:
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{name} cannot be read as text in UTF-8: {error}.") from error
    return _parsed(text, name)


def _parsed(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{what} is not JSON: {error}.") from error


def _trees(nodes: QuerySet[Any], *, explains_all: bool) -> list[dict[str, Any]]:
    """Return what is shown of nodes, but of those that are deleted meanwhile."""
    trees = []
    rows = with_unread(with_status(nodes)).select_related("job_type").order_by("pk")
    for row in rows[:MOST_NODES]:
        with suppress(NodeDeletedError):
            trees.append(_tree(row, explains_all=explains_all))
    return trees


def _tree(row: Any, *, explains_all: bool) -> dict[str, Any]:
    """Return what is shown of a node; why it does not run is asked only if that is shown."""
    unread = Message.objects.using(row.using).filter(port__node=row.pk, as_default=False)
    children = Node.objects.using(row.using).filter(parent=row.pk)
    status, why = derived(row), []
    if explains_all or status == "failed":
        with override(None):  # in English, as all that commands print
            why = [str(reason) for reason in explain(row)]
    return {
        "node": row.pk,
        "name": row.name or next(iter(row.aliases), ""),
        "component": row.job_type.name,
        "status": status,
        "unread": format_count(row.unread),
        "out": format_count(capped_count(unread.filter(port__direction="out"))),
        "why": why,
        "children": _trees(children, explains_all=explains_all),
    }


def _lines(tree: dict[str, Any], depth: int) -> Iterator[str]:
    name = f" {tree['name']}" if tree["name"] else ""
    yield (
        f"{'  ' * depth}{tree['node']}{name} ({tree['component']}): {tree['status']}, "
        f"{tree['unread']} unread, {tree['out']} out"
    )
    for reason in tree["why"]:
        yield f"{'  ' * depth}  {reason}"
    for child in tree["children"]:
        yield from _lines(child, depth + 1)
