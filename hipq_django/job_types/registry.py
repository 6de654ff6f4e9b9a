"""What the code knows: the declared job types and their handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.module_loading import autodiscover_modules

from hipq_django.exceptions import InvalidJobTypeError

if TYPE_CHECKING:
    from hipq_django.job_types.spec import Handler, JobTypeSpec

_declared: dict[tuple[str, str], JobTypeSpec] = {}


def register(declared: JobTypeSpec) -> None:
    """Make a job type known; raise `InvalidJobTypeError` if another one has its name."""
    key = (declared.instance, declared.name)
    other = _declared.get(key)
    if other is not None and _place(other.handler) != _place(declared.handler):
        raise InvalidJobTypeError(
            f"job type {declared.name!r} is declared twice in instance {declared.instance!r}: by "
            f"{_place(other.handler)} and {_place(declared.handler)}; rename one of them."
        )
    _declared[key] = declared


def get_declared(instance: str, name: str) -> JobTypeSpec | None:
    """Return the declaration of a job type, None where this process does not know it."""
    return _declared.get((instance, name))


def get_all_declared(instance: str) -> list[JobTypeSpec]:
    """Return every declared job type of an instance."""
    return [declared for (inst, _), declared in _declared.items() if inst == instance]


def forget(declared: JobTypeSpec) -> None:
    """Take a declaration back; for tests that declare their own types."""
    _declared.pop((declared.instance, declared.name), None)


def autodiscover() -> None:
    """Import the `jobs` module of every installed app."""
    autodiscover_modules("jobs")


def _place(handler: Handler) -> str:
    return f"{handler.__module__}.{handler.__qualname__}"
