"""django-q2 with its ORM broker."""

from benchmarks.pins import DJANGO, PSYCOPG
from benchmarks.systems import System

SYSTEM = System(
    name="django_q2",
    title="django-q2 (ORM)",
    package="benchmarks.peers.django_q2",
    store="postgres",
    workloads=("W1", "W3", "W4", "W5", "W7"),
    is_slow=True,
    tuning="A cluster of 2 processes, bulk 50, poll 10 ms, all results kept, no recycling.",
    requirements=("django-q2==1.11.1", DJANGO, PSYCOPG),
)
