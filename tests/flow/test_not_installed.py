"""A project that does not install the app pays nothing for it."""

import json
import os
import subprocess
import sys
from pathlib import Path

from django.db import connection

from tests.conftest import ROOT


def test_without_the_app_none_of_its_tables_and_modules_is_there(tmp_path: Path) -> None:
    name = f"without_flow_{os.getpid()}"
    is_file = connection.vendor == "sqlite"
    found = subprocess.run(
        [sys.executable, "-m", "tests.without_flow"],
        cwd=ROOT,
        env=os.environ | {"TEST_DATABASE_NAME": str(tmp_path / name) if is_file else name},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    said = json.loads(found.stdout)

    assert said["result"] == [["succeeded", 42], ["cancelled", None]]
    assert "hipq_job" in said["tables"]
    assert not [table for table in said["tables"] if table.startswith("hipq_flow")]
    assert not [module for module in said["modules"] if module.startswith("hipq_django.flow")]
