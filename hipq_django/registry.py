"""What the code knows: the declared job types and their handlers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.utils.module_loading import autodiscover_modules

from hipq_django.definitions import Defaults
from hipq_django.exceptions import InvalidJobTypeError
from hipq_django.setting import DEFAULT
from hipq_django.windows import windows_to_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from hipq_django.retries import RetryPolicy

    Handler = Callable[..., Any]

DEFAULT_QUEUE = "default"

_declared: dict[tuple[str, str], DeclaredType] = {}


@dataclass(eq=False)
class DeclaredType:
    """A declared job type: its code and the defaults of its jobs."""

    name: str
    handler: Handler
    instance: str = DEFAULT
    queue: str = DEFAULT_QUEUE
    defaults: Defaults = field(default_factory=Defaults)
    policy: RetryPolicy | None = None
    max_timeout: float | None = None
    sensitive: tuple[str, ...] = ()
    counted_answers: bool = False
    response_handler: Handler | None = None
    retry_handler: Handler | None = None

    def __post_init__(self) -> None:
        self.__doc__ = self.handler.__doc__
        self.__module__ = self.handler.__module__
        self.__qualname__ = self.handler.__qualname__

    def as_declared(self) -> dict[str, Any]:
        """Return the values a row is created with, in the form that is compared and stored."""
        return {
            "queue": self.queue,
            "default_timeout": self.defaults.timeout,
            "default_priority": self.defaults.priority,
            "default_throttle_factor": str(self.defaults.throttle_factor),
            "default_time_windows": windows_to_json(self.defaults.time_windows),
            "time_zone": self.defaults.time_zone,
        }


def register(declared: DeclaredType) -> None:
    """Make a job type known; raise `InvalidJobTypeError` if another one has its name."""
    key = (declared.instance, declared.name)
    other = _declared.get(key)
    if other is not None and _place(other.handler) != _place(declared.handler):
        raise InvalidJobTypeError(
            f"job type {declared.name!r} is declared twice in instance {declared.instance!r}: by "
            f"{_place(other.handler)} and {_place(declared.handler)}; rename one of them."
        )
    _declared[key] = declared


def get_declared(instance: str, name: str) -> DeclaredType | None:
    """Return the declaration of a job type, None where this process does not know it."""
    return _declared.get((instance, name))


def get_all_declared(instance: str) -> list[DeclaredType]:
    """Return every declared job type of an instance."""
    return [declared for (inst, _), declared in _declared.items() if inst == instance]


def forget(declared: DeclaredType) -> None:
    """Take a declaration back; for tests that declare their own types."""
    _declared.pop((declared.instance, declared.name), None)


def autodiscover() -> None:
    """Import the `jobs` module of every installed app."""
    autodiscover_modules("jobs")


def _place(handler: Handler) -> str:
    return f"{handler.__module__}.{handler.__qualname__}"
