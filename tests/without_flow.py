"""A project that does not install the app of flows: it runs a job, and says what it consists of.

Run as a script, with its database in `DATABASE_URL`, which it makes and removes.
"""

import json
import os
import sys

import django
import environ
from django.conf import settings


def main() -> None:
    """Print the tables, the modules and the result as JSON."""
    from django.db import connection
    from django.test.utils import setup_databases, teardown_databases

    made = setup_databases(verbosity=0, interactive=False)
    try:
        said = {
            "result": result_of_a_job(),
            "tables": connection.introspection.table_names(),
            "modules": sorted(name for name in sys.modules if name.startswith("hipq_django")),
        }
    finally:
        teardown_databases(made, verbosity=0)
    sys.stdout.write(json.dumps(said))


def result_of_a_job() -> object:
    """Run a job by the real scheduler, cancel another, and return what is known of both."""
    import hipq_django as hipq
    from hipq_django import testing

    @hipq.task(name="double")
    def double(number: int) -> int:
        return 2 * number

    jobs = [double.enqueue(number) for number in (21, 1)]
    hipq.cancel(jobs[1])
    testing.run_due_jobs()
    for job in jobs:
        job.refresh_from_db()
    return [[job.outcome, job.result] for job in jobs]


if __name__ == "__main__":
    database = environ.Env().db_url("DATABASE_URL")
    database["TEST"] = {"NAME": os.environ["TEST_DATABASE_NAME"]}
    settings.configure(
        DATABASES={"default": database},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "hipq_django"],
        USE_TZ=True,
    )
    django.setup()
    main()
