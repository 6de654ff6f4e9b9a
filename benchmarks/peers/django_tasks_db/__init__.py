"""django-tasks-db: Django's tasks in the database."""

from benchmarks.pins import DJANGO, PSYCOPG
from benchmarks.systems import System

SYSTEM = System(
    name="django_tasks_db",
    title="django-tasks-db",
    package="benchmarks.peers.django_tasks_db",
    store="postgres",
    workloads=("W1", "W3", "W4", "W5", "W7", "W24"),
    is_slow=True,
    tuning="`db_worker --interval 0.01 --no-startup-delay`; one job at a time.",
    requirements=("django-tasks-db[compat]==0.13.0", DJANGO, PSYCOPG)
    if DJANGO.startswith("Django==5.")
    else ("django-tasks-db==0.13.0", DJANGO, PSYCOPG),
)
