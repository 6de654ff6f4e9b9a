"""Requirements that peers share with hipq_django: the same driver, the same Django."""

from importlib.metadata import PackageNotFoundError, version


def as_here(requirement: str) -> str:
    """Return `requirement` pinned to the version that is installed here, if it is."""
    try:
        return f"{requirement}=={version(requirement.partition('[')[0])}"
    except PackageNotFoundError:
        return requirement


PSYCOPG = as_here("psycopg[binary]")
DJANGO = as_here("Django")
REDIS = "redis==8.1.0"
