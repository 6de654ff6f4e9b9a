"""`manage.py hipq_flow`."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from hipq_django import flow
from hipq_django.flow import testing
from tests.flow.conftest import in_status

pytestmark = pytest.mark.django_db

TWICE = {
    "nodes": {"one": {"component": "t.double"}},
    "inputs": {"number": "one.number"},
    "outputs": {"result": "one.out"},
}


def hipq_flow(*arguments: str) -> str:
    output = StringIO()
    call_command("hipq_flow", *arguments, stdout=output)
    return output.getvalue()


@pytest.fixture
def spec(tmp_path: Path) -> str:
    file = tmp_path / "twice.json"
    file.write_text(json.dumps(TWICE), "utf-8-sig")  # with a mark at the beginning
    return str(file)


def test_a_graph_is_started_from_a_file_and_shown(spec: str) -> None:
    assert hipq_flow("start", spec, "--alias", "twice").endswith("queued\n")
    node = flow.get("twice")
    node.inputs["number"].write(4)
    assert hipq_flow("show", "twice").splitlines() == [
        f"{node.pk} twice (flow.graph): queued, 0 unread, 0 out",
        f"  {node.children['one'].pk} one (t.double): queued, 1 unread, 0 out",
    ]
    testing.drain()

    [shown] = json.loads(hipq_flow("--json"))
    assert (shown["status"], shown["out"]) == ("completed", "1")
    assert shown["children"][0]["name"] == "one"
    assert hipq_flow("terminate", "twice", "--tree") == f"{node}: terminating\n"
    testing.drain()
    assert node.is_terminated()


def test_a_name_steers_no_terminal() -> None:
    assert hipq_flow() == "no nodes\n"
    shown = hipq_flow("start", "t.double", "--alias", "x\x1b[2J\x85") + hipq_flow("show")

    assert "\\u001b[2J" in shown
    assert all(line.isprintable() for line in shown.split("\n"))


def test_a_failed_node_says_why_and_runs_by_force() -> None:
    node = in_status("failed")
    assert "It failed, and runs by force only." in hipq_flow("show", str(node.pk))
    with pytest.raises(CommandError, match=r"is failed: it runs by force only, --force\."):
        hipq_flow("run", str(node.pk))

    assert hipq_flow("run", str(node.pk), "--force") == f"{node}: queued\n"


def test_the_problems_of_a_spec_are_printed(spec: str, tmp_path: Path) -> None:
    assert hipq_flow("check", spec) == "no problems\n"
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps({"nodes": {"a": {"component": "t.doubel"}}, "edges": ["a -> b"]}))
    output = StringIO()
    with pytest.raises(CommandError, match=r"bad\.json: \d problems\."):
        call_command("hipq_flow", "check", str(bad), stdout=output)

    assert "nodes.a.component: component 't.doubel' is not declared" in output.getvalue()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("run", "run: give a name. A node's id or alias"),
        ("run nobody", "there is no node with the id or alias 'nobody'."),
        ("run n --args [1]", "run does not take --args '[1]'; it takes name, --force."),
        ("run n --tree", "run does not take --tree; it takes name, --force."),
        ("start t.double --args {}", "give a JSON list"),
        ("start t.double --args [", "--args is not JSON"),
        ("check missing.json", "missing.json cannot be read"),
        ("check LATIN", "cannot be read as text in UTF-8"),
        ("start DEEP", "is not JSON"),
    ],
)
def test_what_cannot_be_done_is_said(arguments: str, said: str, tmp_path: Path) -> None:
    """Who types `run --tree` believes that the nodes below run too."""
    flow.start("t.double", alias="n", run=False)
    files = {"LATIN": tmp_path / "latin.json", "DEEP": tmp_path / "deep.json"}
    files["LATIN"].write_bytes('{"nodes": {"é": {}}}'.encode("latin-1"))
    files["DEEP"].write_bytes(b"[" * 100_000)
    with pytest.raises(CommandError) as error:
        hipq_flow(*(str(files.get(word, word)) for word in arguments.split()))

    assert said in str(error.value)
