"""The page about production: its code, and the commands of its files, run in a project."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from contextlib import closing, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hipq_django.database.requirements import SQLITE_OPTIONS
from hipq_django.monitoring import overview
from hipq_django.monitoring.endings import Trend
from tests.conftest import ROOT
from tests.docs.conftest import DATABASE, new_database
from tests.docs.documents import Document, codes_of
from tests.docs.project import FreshProject
from tests.docs.test_operations import LEVELS
from tests.processes.conftest import eventually

PAGE = Document(ROOT / "docs" / "production.md")
FILES = ROOT / "docs" / "production"

MIGRATED = f"{DATABASE}_migrated"

WORKER = ["python", "manage.py", "hipq_worker", "--drain-seconds", "80"]
ALIVE = ["python", "worker_alive.py"]
RUN_HERE = [
    WORKER,
    [*WORKER, "--processes", "2"],
    ALIVE,
    ["python", "manage.py", "migrate", "--no-input"],
    ["python", "manage.py", "hipq_prune"],
]
NOT_RUN_HERE = [
    ["gunicorn", "--bind=0.0.0.0:8000", "mysite.wsgi"],
    ["pg_isready", "--username=shop"],
]

JOBS = """
import time
import hipq_django as hipq

@hipq.job_type("sleepy", queue="bank")
def sleepy(job):
    time.sleep(0.5)

@hipq.job_type("boom", queue="bank")
def boom(job):
    raise ValueError("no luck")
"""
SQLITE = f"""
if not environ.Env().bool("DOCS_POSTGRES"):
    DATABASES["default"]["OPTIONS"] = {SQLITE_OPTIONS!r}
HIPQ["default"]["HEARTBEAT_SECONDS"] = 1
"""


def read_yaml(path: Path) -> list[Any]:
    """Return the documents of a file; skip the test where the extra `test` is older than this."""
    yaml = pytest.importorskip("yaml", reason="needs PyYAML, of the extra test")
    return list(yaml.safe_load_all(path.read_text()))


def unit(name: str) -> ConfigParser:
    """Return a unit of systemd."""
    parser = ConfigParser(interpolation=None, delimiters="=", comment_prefixes="#")
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # names as they are
    parser.read(FILES / name)
    return parser


def manifests() -> list[dict[str, Any]]:
    """Return what all files for Kubernetes declare."""
    files = sorted((FILES / "kubernetes").iterdir())
    return [manifest for path in files for manifest in read_yaml(path)]


def pods() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Return each manifest that starts containers, with the specification of its pods."""
    for manifest in manifests():
        spec = manifest["spec"]
        spec = spec["jobTemplate"]["spec"] if manifest["kind"] == "CronJob" else spec
        if "template" in spec:
            yield manifest, spec["template"]["spec"]


def services() -> dict[str, Any]:
    """Return the services of Compose."""
    [content] = read_yaml(FILES / "compose.yaml")
    return dict(content["services"])


def image_command() -> list[str]:
    """Return what a container of the image runs."""
    [line] = re.findall(r"^CMD (.*)$", (FILES / "Dockerfile").read_text(), re.MULTILINE)
    return list(json.loads(line))


def unit_command(name: str) -> list[str]:
    """Return what a unit runs, with the plain name of Python."""
    python, *arguments = shlex.split(unit(name)["Service"]["ExecStart"])
    assert python == "/srv/shop/.venv/bin/python"
    return ["python", *arguments]


def commands() -> Iterator[list[str]]:
    """All commands of all files."""
    yield image_command()
    yield unit_command("hipq-worker.service")
    yield unit_command("hipq-prune.service")
    for service in services().values():
        yield service.get("command", image_command())
        if "healthcheck" in service:
            yield service["healthcheck"]["test"][1:]
    for _, pod in pods():
        for container in pod["containers"]:
            yield container["command"]
            if "livenessProbe" in container:
                yield container["livenessProbe"]["exec"]["command"]


# A project as the page makes it


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FreshProject]:
    """The project of the page with its tables, for all tests to copy."""
    with new_database(MIGRATED) as url:
        project = FreshProject(tmp_path_factory.mktemp("migrated"), url)
        project.create("shop")
        (project.folder / "shop" / "management" / "commands").mkdir(parents=True)
        project.write([block for block in PAGE.blocks() if block.language == "python"], SQLITE)
        with (project.folder / "shop" / "jobs.py").open("a") as file:
            file.write(JOBS)
        shutil.copy(FILES / "worker_alive.py", project.folder)
        set_variables(project)
        project.manage(*["migrate", "--no-input"])
        yield project


@pytest.fixture
def shop(migrated: FreshProject, tmp_path: Path) -> Iterator[FreshProject]:
    """The project of the page, migrated."""
    folder = tmp_path / "fresh"
    shutil.copytree(migrated.folder, folder)
    with new_database(template=MIGRATED) as url:
        project = FreshProject(folder, url)
        set_variables(project)
        yield project


def set_variables(project: FreshProject) -> None:
    """Set the environment that the settings of the page read."""
    project.variables |= {
        "ALLOWED_HOSTS": "shop.example",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "SECRET_KEY": "x" * 50,
        "SITE_URL": "https://shop.example",
    }
    if not project.database_url:
        project.variables["DATABASE_URL"] = f"sqlite:///{project.folder}/db.sqlite3"


@contextmanager
def started(
    project: FreshProject, command: list[str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command of a file in the project, as systemd or a container would."""
    assert command in RUN_HERE
    with project.running(*command[1:], log=log) as process:
        yield process


def status(project: FreshProject) -> Any:
    """Return what `hipq_status` says."""
    return json.loads(project.manage("hipq_status", "--json"))


def starts(log: Path) -> int:
    """Return how many workers have said that they have started."""
    return log.read_text().count("event=worker_started")


def is_alive(
    project: FreshProject,
) -> subprocess.CompletedProcess[str]:
    """Run the probe."""
    return subprocess.run(
        [sys.executable, *ALIVE[1:]],
        cwd=project.folder,
        env=project.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def enqueue(project: FreshProject, *names: str) -> None:
    """Enqueue a job of each of these types."""
    code = f"import hipq_django as hipq; [hipq.enqueue(name) for name in {names!r}]"
    project.manage("shell", "-c", code)


def outcomes(project: FreshProject) -> list[str]:
    """Return how the jobs have ended, the oldest first."""
    code = (
        "from hipq_django.models import Job; print([j.outcome for j in Job.objects.order_by('id')])"
    )
    return list(ast.literal_eval(project.manage("shell", "-c", code).splitlines()[-1]))


@pytest.mark.processes
@pytest.mark.parametrize(
    "command", [unit_command("hipq-worker.service"), image_command()], ids=["unit", "image"]
)
def test_the_worker_runs_as_the_files_say_and_ends_by_sigterm(
    shop: FreshProject, tmp_path: Path, command: list[str]
) -> None:
    log = tmp_path / "worker.log"
    processes = int(command[-1]) if "--processes" in command else 1
    shop.variables["LOG_FORMAT"] = "json"

    with started(shop, command, log) as worker:
        eventually(lambda: starts(log) == processes, "the workers run")
        assert len(status(shop)["workers"]) == processes
        enqueue(shop, "sleepy")
        eventually(lambda: "event=job_started" in log.read_text(), "the job runs")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=60) == 0

    assert outcomes(shop) == ["succeeded"]
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["logger"] for line in lines} == {"hipq_django"}
    done = [line for line in lines if line.get("event") == "job_succeeded"]
    assert [line["job_type"] for line in done] == ["sleepy"]


@pytest.mark.nightly
@pytest.mark.processes
def test_the_probe_says_whether_a_worker_lives_here(shop: FreshProject, tmp_path: Path) -> None:
    """Also where the project prints something each time, before and after the answer."""
    with (shop.folder / "mysite" / "settings.py").open("a") as file:
        file.write('import atexit\nprint("{hello}")\natexit.register(print, "{bye}")\n')
        file.write('HIPQ["default"]["HEARTBEAT_SECONDS"] = 0.4\n')
    none = f"no worker on {socket.gethostname()} has sent a heartbeat lately\n"
    before, log = is_alive(shop), tmp_path / "worker.log"
    assert (before.returncode, before.stderr) == (1, none)

    with started(shop, WORKER, log) as worker:
        eventually(lambda: not is_alive(shop).returncode, "the worker runs")
        worker.send_signal(signal.SIGSTOP)
        eventually(lambda: is_alive(shop).returncode, "the probe sees that it hangs")

    assert is_alive(shop).stderr == none


@pytest.mark.processes
def test_what_fails_is_reported_and_requeued(shop: FreshProject, tmp_path: Path) -> None:
    enqueue(shop, "boom")

    log = shop.manage("hipq_worker", "--until-idle")

    assert re.search(r" ERROR hipq_django event=job_failed job_id=\d+ job_type=boom .*no luck", log)
    assert "Traceback (most recent call last)" in log
    assert outcomes(shop) == ["failed"]
    assert "1 done" in shop.manage("requeue_failed", "boom", "24")
    assert "1 skipped (it was requeued already)" in shop.manage("requeue_failed", "boom", "24")
    assert len(outcomes(shop)) == 2
    assert "bank: deleted 0" in shop.manage(*RUN_HERE[-1][2:])


@pytest.mark.processes
def test_the_settings_are_good_and_hide_tokens(shop: FreshProject) -> None:
    assert "no issues" in shop.manage("check")
    said = shop.manage("shell", "-c", LOOK)

    assert "the address is https://shop.example/hipq/callback/…" in said
    assert "WARNING anything GET /hipq/callback/" in said
    assert "/default-1-1.•••/" in said


LOOK = """
import logging
from hipq_django.answers.callback_urls import Token
from mysite.settings import without_tokens
path = f"/hipq/callback/{Token('default', 1, 1).sign()}/"
logging.getLogger("anything").warning("GET %s", path)
event = {"request": {"url": f"https://shop.example{path}"}}
print("the address is", without_tokens(event, {})["request"]["url"])
assert without_tokens({}, {}) == {}
"""


@pytest.mark.processes
def test_a_shell_pauses_a_queue_and_cancels_what_waits(shop: FreshProject) -> None:
    [typed] = [block.text for block in PAGE.blocks() if block.language == "py"]
    enqueue(shop, "sleepy")
    printed = shop.manage("shell", "-c", typed)

    assert "'sleepy', 'NONE', 'initial')" in printed
    assert printed.strip().endswith("1 done")
    [bank] = status(shop)["queues"]
    assert (bank["paused"], bank["due"]) == (True, 0)


@pytest.mark.conformance
@pytest.mark.processes
def test_a_restored_queue_starts_paused_and_with_new_ids(shop: FreshProject) -> None:
    enqueue(shop, "sleepy")
    back_up, console = [block.text for block in PAGE.blocks() if block.language == "console"]
    if not shop.database_url:
        execute_lines(shop, back_up)
        enqueue(shop, "sleepy")
        restore(shop.folder)
        assert [queue["due"] for queue in status(shop)["queues"]] == [1]
    execute_lines(shop, console)

    assert {queue["paused"] for queue in status(shop)["queues"]} == {True}
    on_postgres, on_sqlite = [block.text for block in PAGE.blocks() if block.language == "sql"]
    if shop.database_url:
        with psycopg.connect(shop.database_url, autocommit=True) as connection:
            connection.execute(on_postgres.encode())
    else:
        with closing(sqlite3.connect(shop.folder / "db.sqlite3", isolation_level=None)) as file:
            file.execute(on_sqlite)
    enqueue(shop, "sleepy")
    code = "from hipq_django.models import Job; print(Job.objects.latest('id').id)"
    assert int(shop.manage("shell", "-c", code).split()[-1]) > 10_000_000


def execute_lines(shop: FreshProject, console: str) -> None:
    for line in console.splitlines():
        shop.manage(*shlex.split(line.removeprefix("$ python manage.py ")))


def restore(folder: Path) -> None:
    """Put the copy in the place of the database."""
    for name in ("db.sqlite3-wal", "db.sqlite3-shm"):
        (folder / name).unlink(missing_ok=True)
    (folder / "backup.sqlite3").replace(folder / "db.sqlite3")


# The files


def test_every_command_of_the_files_is_run_by_these_tests() -> None:
    for command in commands():
        assert command in RUN_HERE + NOT_RUN_HERE


def test_every_file_is_named_on_the_page() -> None:
    linked = {PAGE.path.parent / link for link in PAGE.links()}

    assert {path for path in FILES.rglob("*") if path.is_file()} <= linked


def test_the_files_fit_together() -> None:
    specs = {manifest["metadata"]["name"]: pod for manifest, pod in pods()}
    containers = [container for pod in specs.values() for container in pod["containers"]]
    labels = [m["spec"]["template"]["metadata"]["labels"] for m in manifests() if deploys(m)]

    assert sorted(m["kind"] for m in manifests()) == [
        *("CronJob", "Deployment", "Deployment", "Job", "Service"),
    ]
    assert [m["spec"]["selector"]["matchLabels"] for m in manifests() if deploys(m)] == labels
    assert all(m["spec"]["selector"] in labels for m in manifests() if m["kind"] == "Service")
    assert len({container["image"] for container in containers}) == 1
    assert {s["secretRef"]["name"] for c in containers for s in c["envFrom"]} == {"shop"}


def test_a_worker_puts_its_jobs_back_before_it_is_killed_and_is_no_process_1() -> None:
    [worker] = [pod for manifest, pod in pods() if manifest["metadata"]["name"] == "shop-worker"]
    service = unit("hipq-worker.service")["Service"]
    drains = [c[c.index("--drain-seconds") + 1] for c in commands() if "hipq_worker" in c]

    assert set(drains) == {"80"}
    assert worker["terminationGracePeriodSeconds"] == 90
    assert (service["TimeoutStopSec"], services()["worker"]["stop_grace_period"]) == ("90", "90s")
    assert worker["shareProcessNamespace"] is True
    assert all(services()[name]["init"] for name in ("migrate", "web", "worker"))
    assert (service["KillMode"], service["Restart"]) == ("mixed", "always")
    for name in ("web", "worker"):
        needs = services()[name]["depends_on"]
        assert needs == {"migrate": {"condition": "service_completed_successfully"}}


def deploys(manifest: dict[str, Any]) -> bool:
    """Return whether a manifest is a Deployment."""
    return bool(manifest["kind"] == "Deployment")


# What is said on the page


def test_what_the_page_names_is_there() -> None:
    package = "".join(path.read_text() for path in (ROOT / "hipq_django").rglob("*.py"))
    seen = {code for row in PAGE.headed("You see") for code in codes_of(row[0])}
    findings = {code for code in seen if "_" in code and code.isidentifier()}
    known = {field.name for field in fields(overview.Overview)} | {"hipq_doctor"}
    known |= {f"queues[].{field.name}" for field in fields(overview.QueueCounts)}
    known |= {f"queues[].{name}" for name in Trend().as_dict()} | {"throttle_limit", "silent"}
    known |= {"queues[].unanswered"}
    watched = {code for row in PAGE.headed("Value") for code in codes_of(row[0])}
    actions = re.findall(r"\*([A-Z][a-z]+ the selected [a-z]+)\*", PAGE.text)

    assert not [e for e in re.findall(r"event=(\w+)", PAGE.text) if f'"{e}"' not in package]
    assert findings <= {*LEVELS, "WorkerLost"}
    assert {value for value in watched if "=" not in value} <= known
    assert len(actions) == 3
    assert not [action for action in actions if f'_("{action}")' not in package]
