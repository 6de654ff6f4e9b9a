"""The reference is complete: nothing public is missing, and nothing in it is not there."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.core.management import load_command_class
from django.core.management.base import BaseCommand
from django.dispatch import Signal
from pytest_django import Settings

import hipq_django as hipq
from hipq_django import checks, exceptions, flow, signals, testing
from hipq_django.api.enqueueing import ON_CONFLICT
from hipq_django.conf import options, rules
from hipq_django.database.requirements import SQLITE_OPTIONS
from hipq_django.domain.drafts import JOB_OPTIONS
from hipq_django.domain.job_options import OF_TYPES
from hipq_django.domain.ordering import Order
from hipq_django.flow import (
    creating,
    explaining,
    settings as flow_settings,
    testing as flow_testing,
    upkeep,
)
from hipq_django.flow.aliases import Aliases
from hipq_django.flow.declaring import OWN_OPTIONS, REFUSED
from hipq_django.flow.state import State
from hipq_django.flow.web.endpoints import ENDPOINTS, shown_path
from hipq_django.flow.web.view import EndpointView
from hipq_django.job_types.declaration import TYPE_OPTIONS
from hipq_django.models import Answer, Batch, Job, JobType, Queue, Schedule, Worker
from hipq_django.monitoring import reasons
from hipq_django.web import callback_view, receiving, webhook_view
from tests.conftest import ROOT
from tests.docs.documents import REFERENCE, codes_of
from tests.docs.option_tables import MARKED, NEW, TABLES, written
from tests.docs.project import FreshProject
from tests.processes.forked import ForkedProcess

COMMANDS = {
    "hipq_worker": "hipq_django",
    "hipq_consume": "hipq_django",
    "hipq_status": "hipq_django",
    "hipq_doctor": "hipq_django",
    "hipq_sync": "hipq_django",
    "hipq_prune": "hipq_django",
    "hipq_jobs": "hipq_django",
    "hipq_schedules": "hipq_django",
    "hipq_flow": "hipq_django.flow",
}
"""The commands, and the app of each."""

FOR_TESTS_ONLY = {"draw"}  # of Exponential: where chance comes from


def first_codes(rows: list[list[str]]) -> list[str]:
    """Return all pieces of code in the first cells."""
    return [code for row in rows for code in codes_of(row[0])]


def names(rows: list[list[str]]) -> list[str]:
    """Return the names that the first cells begin with, without their arguments."""
    return [code.partition("(")[0] for code in first_codes(rows)]


# Settings


def test_every_setting_is_there_with_its_default_and_its_values() -> None:
    said = "run python -m tests.docs.option_tables, and say what a new option means"

    assert written(REFERENCE.text) == REFERENCE.text, said
    assert {match[1] for match in MARKED.finditer(REFERENCE.text)} == set(TABLES)
    assert f"| {NEW} |" not in REFERENCE.text, said


def test_every_order_is_explained() -> None:
    meaning = next(row[-1] for row in REFERENCE.rows("Of a queue") if "ORDER" in row[0])

    assert [code.strip('"') for code in codes_of(meaning)] == Order.values


# Functions and classes


def test_every_public_name_is_there_once() -> None:
    written = names(REFERENCE.headed("Name") + REFERENCE.headed("Error"))

    assert sorted(written) == dir(hipq)


def test_each_signature_is_that_of_the_code() -> None:
    written_out = [c for c in first_codes(REFERENCE.headed("Name")) if "(" in c and "…" not in c]

    assert [signature for signature in written_out if not is_that_of_the_code(signature)] == []


def is_that_of_the_code(signature: str) -> bool:
    """Return whether a function has the parameters and defaults that are written."""
    written = _parameters(signature)
    real = inspect.signature(getattr(hipq, signature.partition("(")[0])).parameters
    names = [name for name in real if name not in FOR_TESTS_ONLY]
    if "**" in signature:
        names = list(real)[: len(written)]
    return list(written) == names and all(
        default == real[name].default or repr(real[name].default) == "<factory>"
        for name, default in written.items()
    )


def _parameters(signature: str) -> dict[str, Any]:
    """Return the parameters of a signature and their defaults; `**options` is left out."""
    [function] = ast.parse(f"def {signature}: ...").body
    assert isinstance(function, ast.FunctionDef)
    given = function.args.args
    defaults: list[Any] = [inspect.Parameter.empty] * (len(given) - len(function.args.defaults))
    defaults += [
        eval(ast.unparse(each), {"NOTHING": flow.NOTHING}) for each in function.args.defaults
    ]
    if function.args.vararg:
        given, defaults = [*given, function.args.vararg], [*defaults, inspect.Parameter.empty]
    return {argument.arg: default for argument, default in zip(given, defaults, strict=True)}


def test_every_option_of_a_job_type_is_there_with_its_default() -> None:
    rows = REFERENCE.rows("Options of a job type")

    assert first_codes(rows) == ["queue", "instance", *TYPE_OPTIONS]
    defaults = {codes_of(row[0])[0]: row[1] for row in rows}
    for option in OF_TYPES:
        if isinstance(option.default, int):
            assert defaults[option.name] == f"`{option.default}`"


def test_every_option_of_a_job_is_there() -> None:
    rows = REFERENCE.rows("Options of a job")

    assert first_codes(rows) == [*JOB_OPTIONS, "on_conflict", "instance"]
    [conflicts] = [row[2] for row in rows if "on_conflict" in row[0]]
    assert {code.strip('"') for code in codes_of(conflicts)} >= set(ON_CONFLICT)


def test_every_reason_is_there() -> None:
    codes = set(first_arguments(reasons, "Reason"))

    assert len(codes) > 10
    assert set(first_codes(REFERENCE.rows("Reasons"))) == codes


def first_arguments(module: ModuleType, *functions: str) -> Iterator[Any]:
    """Return the constants that calls of the functions begin with."""
    calls = [node for node in ast.walk(_tree(module)) if isinstance(node, ast.Call)]
    for call in calls:
        is_wanted = isinstance(call.func, ast.Name) and call.func.id in functions
        if is_wanted and isinstance(call.args[0], ast.Constant):
            yield call.args[0].value


def test_every_function_of_the_test_kit_is_there() -> None:
    assert sorted(names(REFERENCE.headed("Function"))) == sorted(testing.__all__)


def test_every_status_of_a_view_is_there() -> None:
    for heading, module in (("Callbacks", callback_view), ("Webhooks", webhook_view)):
        written = {row[0] for row in REFERENCE.rows(heading) if row[0].isdecimal()}
        sources = inspect.getsource(module) + inspect.getsource(receiving)
        assert written == set(re.findall(r"\b[245]\d\d\b", sources)), heading


def test_every_part_of_a_webhook_is_there() -> None:
    parts = set(vars(webhook_view.WebhookView)) - set(vars(receiving.ReceivingView))
    written = first_codes(REFERENCE.headed("Part"))

    assert set(written) == {part for part in parts if not part.startswith("_")}


def test_every_request_of_flows_is_there_with_its_permission_and_fields() -> None:
    tables = REFERENCE.tables("HTTP API of flows")
    requests = [row for table in tables if table.head[0] == "Request" for row in table.rows]
    written = [(*codes_of(row[0].replace("\\|", "|")), *codes_of(row[1])) for row in requests]

    assert written == [
        (f"{each.method} {shown_path(each.route)}", each.permission) for each in ENDPOINTS
    ]
    for row, each in zip(requests, ENDPOINTS, strict=True):
        required = {name for name, field in each.fields.items() if field.required}
        assert set(each.fields) <= set(codes_of(row[2]))
        assert set(re.findall(r"\*\*`(\w+)`\*\*", row[2])) == required


def test_every_status_of_flows_is_there() -> None:
    tables = REFERENCE.tables("HTTP API of flows")
    [statuses] = [table.rows for table in tables if table.head[0] == "Status"]
    said = re.findall(r"\b([45]\d\d): ", str(EndpointView.__doc__))

    assert [row[0] for row in statuses[1:]] == sorted(said)


# Errors, rows, signals


def test_every_error_is_there() -> None:
    classes = [kind for kind in vars(exceptions).values() if inspect.isclass(kind)]
    errors = {kind.__name__ for kind in classes if issubclass(kind, exceptions.HipqError)}

    assert set(names(REFERENCE.headed("Error"))) == errors


def test_an_error_is_also_what_is_written() -> None:
    for error, meaning in REFERENCE.headed("Error"):
        also = codes_of(meaning.partition("Also ")[2])
        ancestors = {kind.__name__ for kind in getattr(hipq, codes_of(error)[0]).__mro__}

        assert set(also) <= ancestors


def test_every_field_of_a_job_is_there() -> None:
    written = first_codes(REFERENCE.headed("Field of a job"))

    assert sorted(written) == sorted(field.name for field in Job._meta.concrete_fields)


def test_every_signal_is_there() -> None:
    sent = {name for name, value in vars(signals).items() if isinstance(value, Signal)}

    assert set(first_codes(REFERENCE.headed("Signal"))) == sent


def test_every_permission_is_there() -> None:
    seen, edited = (Answer, Batch, Job, JobType, Queue, Schedule, Worker), (Job, JobType, Queue)
    of_verbs = {f"hipq.{verb}" for model in seen for verb, _ in model._meta.permissions}
    to_view = {f"hipq.view_{model._meta.model_name}" for model in seen}
    to_change = {f"hipq.change_{model._meta.model_name}" for model in edited}
    of_schedules = {f"hipq.{verb}_schedule" for verb in ("add", "change", "delete")}
    wanted = of_verbs | to_view | to_change | of_schedules

    assert set(first_codes(REFERENCE.headed("Permission"))) == wanted


# Commands


def test_every_option_of_a_command_is_there_with_its_default() -> None:
    for command in COMMANDS:
        options = _own_options(command)
        rows = [r for t in REFERENCE.tables(command) if t.head[0] == "Option" for r in t.rows]

        strings = [string for action in options.values() for string in action.option_strings]
        assert first_codes(rows) == strings, command
        for option, default, _ in rows:
            action = options[codes_of(option)[0]]
            if codes_of(default) and action.dest != "reload":
                assert codes_of(default) == [str(action.default)], (command, option)


def _own_options(command: str) -> dict[str, argparse.Action]:
    common = {action.dest for action in BaseCommand().create_parser("manage.py", "")._actions}
    parser = load_command_class(COMMANDS[command], command).create_parser("manage.py", command)
    own = [action for action in parser._actions if action.dest not in common]
    return {action.option_strings[0]: action for action in own if action.option_strings}


def test_every_command_is_there() -> None:
    package = Path(inspect.getfile(hipq)).parent

    assert {path.stem for path in package.rglob("commands/hipq_*.py")} == set(COMMANDS)
    assert all(REFERENCE.section(command) for command in COMMANDS)


@pytest.mark.processes
def test_a_worker_exits_with_the_code_that_is_written(
    process_environment: dict[str, str], tmp_path: Path
) -> None:
    written = [row[0] for row in REFERENCE.headed("Exit code")]
    log = tmp_path / "log"

    for code, arguments in enumerate((["--until-idle", "-v0"], ["no_such_queue"], ["--no-such"])):
        worker = ForkedProcess(["hipq_worker", *arguments], process_environment, log)
        assert (worker.wait(60), str(code) in written) == (code, True), log.read_text()
        assert code > 1 or log.read_text().count("\n") == code  # one line says what is wrong


# The log

COMPOSED = {"progress_refused", "extend_refused"}
"""Events whose names are made of others."""


def test_every_warning_and_error_of_the_log_is_there() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "hipq_django").rglob("*.py"))
    logged = set(re.findall(r'\bevents\.(?:warning|error|critical)\(\s*"(\w+)"', sources))
    told = set(first_codes(REFERENCE.rows("Warnings and errors")))

    assert len(logged) > 40
    assert logged - told == set()
    assert {name for name in told if f'"{name}"' not in sources} == COMPOSED


# System checks

OPEN = {"SOURCE": "no.such", "MAP": "no.such"}
BROKEN: dict[str, Any] = {
    "hipq.E001": [],
    "hipq.E002": {"Shop": {}},
    "hipq.E003": {"default": {"QUEUE": {}}},
    "hipq.E005": {"default": {"HEARTBEAT_SECONDS": 0}},
    "hipq.E008": {"default": {"QUEUES": {"Bank": {}}}},
    "hipq.E009": {"default": {"QUEUES": {"bank": {"LIMIT": 1}}}},
    "hipq.E012": {"default": {"QUEUES": {"bank": {"RETENTION_DAYS": -1}}}},
    "hipq.E014": {"default": {"QUEUES": {"bank": {"THROTTLERS": ["no.such"]}}}},
    "hipq.E021": {"default": {"SOURCES": {"Bank": OPEN}}},
    "hipq.E022": {"default": {"SOURCES": {"bank": OPEN | {"TOPIC": "bank"}}}},
    "hipq.E023": {"default": {"SOURCES": {"bank": OPEN | {"SOURCE": 5}}}},
    "hipq.E024": {"default": {"SOURCES": {"bank": OPEN}}},
}
SOURCES_OF_CHECKS = "".join(map(inspect.getsource, (checks, rules, options, flow_settings)))
HINTS = {codes_of(row[0])[0]: row[2] for row in REFERENCE.rows("System checks")}


def test_every_check_is_there() -> None:
    assert set(HINTS) == set(re.findall(r'"(hipq\.[EWI]\d{3})"', SOURCES_OF_CHECKS))


def test_the_hint_of_each_broken_setting_is_there(settings: Settings) -> None:
    for check_id, broken in BROKEN.items():
        settings.HIPQ = broken
        found = checks.check_setting()
        assert [problem.id for problem in found] == [check_id]
        written = re.escape(HINTS[check_id]).replace("…", ".+")
        assert re.fullmatch(written, str(found[0].hint)), check_id


def test_the_hint_of_each_check_of_the_database_is_there() -> None:
    of_databases = {n: hint for n, hint in HINTS.items() if n not in BROKEN and "…." not in hint}

    assert {n for n, hint in of_databases.items() if f'"{hint}"' not in SOURCES_OF_CHECKS} == set()


# SQLite


def options_of(path: str) -> dict[str, Any]:
    """Return the options that a file gives to SQLite."""
    text = (ROOT / path).read_text()
    written = re.search(r'DATABASES\["default"\]\["OPTIONS"\] = (\{.*?\n *\})', text, re.DOTALL)
    assert written, path
    return dict(ast.literal_eval(written[1]))


def test_there_is_one_recipe_for_sqlite() -> None:
    files = (
        "README.md",
        "docs/reference/settings.md",
        "docs/tutorial.md",
        "example_project/settings.py",
    )

    assert [options_of(path) for path in files] == [SQLITE_OPTIONS] * len(files)


# Flows

PARTS_OF_FLOWS = {
    "In a run": flow.Component,
    "Nodes": flow.Node,
    "Ports": flow.Port,
    "State": State,
}
INTERNAL = {"awaited", "row", "using"}
ATTRIBUTES = {"Ports": {"node", "direction", "name", "last"}}
"""What no class has, but each of its objects."""


def test_every_public_name_of_flows_is_there_once() -> None:
    written = names(REFERENCE.headed("Name of flows"))

    assert sorted(written) == dir(flow)


def test_every_member_is_there_once() -> None:
    for heading, kind in PARTS_OF_FLOWS.items():
        written = names(REFERENCE.rows(heading))
        known = members(kind) - INTERNAL | ATTRIBUTES.get(heading, set())
        assert sorted(written) == sorted(known), heading


def members(kind: type) -> set[str]:
    """Return the public functions and properties of a class, and of bases that stand beside it."""
    beside = [base for base in kind.__bases__ if base.__module__ == kind.__module__]
    [body] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    found = {n.name for n in body.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
    twins = [n.targets[0] for n in body.body if isinstance(n, ast.Assign)]
    found |= {n.id for n in twins if isinstance(n, ast.Name) and callable(getattr(kind, n.id))}
    found |= {name for base in beside for name in members(base)}
    return {name for name in found if not name.startswith("_")}


def test_the_verbs_of_aliases_are_there() -> None:
    [meaning] = [row[1] for row in REFERENCE.rows("Nodes") if row[0] == "`aliases`"]
    written = {code.partition("(")[0].removeprefix("aliases.") for code in codes_of(meaning)}

    assert members(Aliases) <= written


def tables_of_flows() -> Iterator[tuple[Any, list[list[str]]]]:
    """Whose names are written in which rows."""
    yield flow, REFERENCE.headed("Name of flows")
    yield flow_testing, REFERENCE.headed("Function of flows")
    for heading, kind in PARTS_OF_FLOWS.items():
        yield kind, REFERENCE.rows(heading)


TAKES_WHAT_DJANGO_GIVES = (flow.Node, "delete()")


def test_each_signature_of_flows_is_that_of_the_code() -> None:
    for owner, rows in tables_of_flows():
        for code in first_codes(rows):
            if "(" not in code or (owner, code) == TAKES_WHAT_DJANGO_GIVES:
                continue
            real = dict(inspect.signature(getattr(owner, code.partition("(")[0])).parameters)
            real.pop("self", None)
            named = {n: each for n, each in real.items() if each.kind is not each.VAR_KEYWORD}
            assert {n: each.default for n, each in named.items()} == _parameters(code), code
            assert ("**" in code) == (named != real), code


def test_every_option_of_a_start_is_there_with_its_default() -> None:
    real = inspect.signature(creating.start).parameters
    options = {name: each.default for name, each in real.items() if name != "component"}
    options["on_conflict"] = "raise"
    rows = REFERENCE.rows("Options of flow.start")

    assert {
        name: ast.literal_eval(codes_of(row[1])[0]) for row in rows for name in codes_of(row[0])
    } == options
    [of_jobs] = [row[2] for row in rows if row[0] == "`job`"]
    assert set(creating.OF_JOBS) == set(codes_of(of_jobs))


def test_every_option_of_a_component_is_there_with_its_default() -> None:
    real = inspect.signature(flow.component).parameters
    own = {name: real[name].default for name in ("queue", "instance", "outs")} | OWN_OPTIONS
    *rows, others = REFERENCE.rows("Options of a component")

    assert {codes_of(row[0])[0]: ast.literal_eval(codes_of(row[1])[0]) for row in rows} == own
    assert codes_of(others[0]) == [name for name in TYPE_OPTIONS if name not in REFUSED]
    said = REFERENCE.section("Options of a component").rpartition("|")[2]
    assert set(REFUSED) <= set(codes_of(said))


def test_every_reason_of_nodes_is_there() -> None:
    codes = set(first_arguments(explaining, "Reason"))

    assert set(first_codes(REFERENCE.rows("Reasons of nodes"))) == codes


def test_every_finding_of_flows_is_there_with_its_level() -> None:
    written = {(row[1], codes_of(row[0])[0]) for row in REFERENCE.rows("Findings of flows")}

    assert written == {
        (level, code) for level in ("problem", "warning") for code in first_arguments(upkeep, level)
    }


def test_every_error_of_flows_is_there() -> None:
    errors = subclasses(flow.FlowError)
    rows = REFERENCE.headed("Error of flows")

    assert set(first_codes(rows)) == {each.__name__ for each in errors}
    for row in rows:
        [error] = [each for each in errors if each.__name__ == codes_of(row[0])[0]]
        also = codes_of(row[1].partition("Also ")[2])
        assert set(also) <= {kind.__name__ for kind in error.__mro__}


def subclasses(error: type[Exception]) -> set[type[Exception]]:
    """Return an error and all that are kinds of it in the package."""
    found = {error}.union(*map(subclasses, error.__subclasses__()))
    return {each for each in found if each.__module__.startswith("hipq_django.")}


def test_every_function_of_the_test_kit_of_flows_is_there() -> None:
    assert sorted(names(REFERENCE.headed("Function of flows"))) == sorted(flow_testing.__all__)


# Examples


@pytest.mark.processes
def test_the_examples_work_together(fresh_project: FreshProject) -> None:
    fresh_project.create("shop")
    fresh_project.write([block for block in REFERENCE.blocks() if block.language == "python"])

    assert "no issues" in fresh_project.manage("check")
    assert "OK" in fresh_project.manage("test", "shop")


def test_every_example_names_its_file() -> None:
    assert all(block.file for block in REFERENCE.blocks() if block.language == "python")


def _tree(module: Any) -> ast.Module:
    return ast.parse(inspect.getsource(module))
