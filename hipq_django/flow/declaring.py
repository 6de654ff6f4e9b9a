"""Components: code with declared ports, registered as job types of their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from django.db import Error

from hipq_django.conf.rules import DEFAULT
from hipq_django.domain.options import Number, Option, Words, allowing
from hipq_django.domain.parts import WAIT_FOR
from hipq_django.domain.redaction import without_fields
from hipq_django.domain.retries import WAIT
from hipq_django.domain.serialization import error_of
from hipq_django.exceptions import (
    HipqError,
    InvalidJobError,
    InvalidJobTypeError,
    UnknownOptionError,
    alike,
    nearest_name,
)
from hipq_django.flow.base import Component
from hipq_django.flow.declared_ports import ANY, AnyIn, AnyOut, DeclaredPort, In, Out, PortOptions
from hipq_django.flow.exceptions import FlowError, InvalidPortError, UnknownComponentError
from hipq_django.flow.values import NOTHING
from hipq_django.job_types.declaration import (
    DEFAULT_QUEUE,
    TYPE_OPTIONS,
    Declaration,
    checked_values,
)
from hipq_django.job_types.registry import (
    get_all_declared,
    get_declared,
    register,
    sensitive_fields,
)

if TYPE_CHECKING:
    from hipq_django.models import Job

KIND = "flow.component"
"""The kind of the job types of components."""

_COUNT = Number(1, 1_000_000, whole=True)
_FLAG = allowing(lambda value: isinstance(value, bool))
OPTIONS = (
    Option("batch", 1000, _COUNT),
    Option("runs_per_minute", 600, _COUNT),
    Option("runaway", "slow", Words(("slow", "terminate"))),
    Option("status_publish", True, _FLAG, "True or False"),
    Option("log_data", False, _FLAG, "True or False"),
    Option("wake_parent", "always", Words(("always", "changes"))),
    Option("public", False, _FLAG, "True or False"),
)
OWN_OPTIONS = {option.name: option.default for option in OPTIONS}
OUTS = ("out",)
"""The out-ports of a function that names none."""

REFUSED = ("schedule", "unique", "unique_on", "counted_answers")
"""Options of job types that components do not have."""

GRAPHS: dict[tuple[str, str], Mapping[str, Any]] = {}
"""The graphs that code has named, by instance and name: `flow.start` takes either by its name."""

_NOT_ENQUEUED = "components are not enqueued; start a node: flow.start({!r})"


@dataclass(eq=False)
class ComponentDeclaration(Declaration):
    """A declared component."""

    component: type[Component] = Component
    inputs: dict[str, PortOptions] = field(default_factory=dict)
    outputs: dict[str, PortOptions] = field(default_factory=dict)
    batch: int = 1000
    runs_per_minute: int = 600
    runaway: str = "slow"
    status_publish: bool = True
    log_data: bool = False
    wake_parent: str = "always"
    public: bool = False
    meta: dict[str, Any] = field(default_factory=dict)

    def check_args(self, args: Sequence[Any]) -> None:
        """Raise `FlowError` unless a node may have these arguments, also if their check breaks."""
        try:
            self.component.check_args(args)
        except (HipqError, Error):
            raise
        except Exception as error:
            raise FlowError(
                f"component {self.name!r}: check_args refused the arguments: {error_of(error)}"
            ) from error

    def checked_data(self, job_data: Any) -> Any:
        """Refuse jobs that no node has made."""
        raise InvalidJobError(f"job type {self.name!r}: {_NOT_ENQUEUED.format(self.name)}")

    def check_gathers(self) -> None:
        """Refuse it before the others are enqueued: a run waits for one answer."""
        raise FlowError(
            f"component {self.name!r}: a run does not wait for jobs by job.gather; enqueue them "
            "with self.enqueue(job_type, data), or let a stage do it, which hands on what they "
            "return."
        )

    def ports(self, direction: str) -> dict[str, PortOptions]:
        """Return the ports of one side."""
        return self.inputs if direction == "in" else self.outputs


def component(
    name: str,
    *,
    queue: str = DEFAULT_QUEUE,
    instance: str = DEFAULT,
    outs: Sequence[str] = OUTS,
    **options: Any,
) -> Callable[[Any], Any]:
    """Declare the decorated class, or function, as component `name`.

    Options are those of `hipq_django.job_type` and: `batch`, how many tuples `each` takes before
    the run makes way (1,000); `runs_per_minute` (600) and what comes beyond, `runaway="slow"` or
    "terminate"; `status_publish=False` for no status messages; `log_data=True` to log what is read
    and written; `wake_parent="changes"` to wake the parent only if the node's rest changed or an
    out-port got data; `public=True` if graphs from outside may name it. All others, such as `icon`,
    are kept as `meta`. Of a function the parameters are in-ports; what it returns goes to the first
    of the ports `outs`, and each `yield "port", value` to that port.
    """
    if callable(name):  # the code itself: nothing would be declared
        raise InvalidJobTypeError(
            'component has no name; write @flow.component("shop.fraud") above the code.'
        )
    own, of_type, meta = _split(name, options)

    def declare(code: Any) -> Any:
        made = code if isinstance(code, type) else _of_function(name, code, outs)
        _register(name, made, {"queue": queue, "instance": instance, **own, "meta": meta}, of_type)
        return code

    return declare


def _split(
    name: str, options: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the options of components, those of job types, and all others."""
    for option in REFUSED:
        if option in options:
            raise InvalidJobTypeError(f"component {name!r}: {option}= is not for components.")
    own = OWN_OPTIONS | {key: value for key, value in options.items() if key in OWN_OPTIONS}
    _check_own(name, own)
    of_type = {key: value for key, value in options.items() if key in TYPE_OPTIONS}
    meta = {key: value for key, value in options.items() if key not in {*own, *of_type}}
    known = (*OWN_OPTIONS, *TYPE_OPTIONS, "queue", "instance", "outs")
    for option in meta:
        if alike(option, known):
            raise UnknownOptionError(f"component {name!r}", option, known)
    return own, of_type, meta


def _check_own(name: str, own: Mapping[str, Any]) -> None:
    for option in OPTIONS:
        try:
            option.checked(own[option.name])
        except InvalidJobError as error:
            raise InvalidJobTypeError(f"component {name!r}: {error}") from error


def _register(
    name: str, made: type[Any], own: dict[str, Any], of_type: dict[str, Any]
) -> ComponentDeclaration:
    if not (issubclass(made, Component) and made.perform is not Component.perform):
        raise InvalidJobTypeError(
            f"component {name!r}: {made.__qualname__} needs to be a flow.Component with a method "
            "perform(self)."
        )
    queue, instance = own.pop("queue"), own.pop("instance")
    values = checked_values(name, queue, instance, of_type)  # type: ignore[arg-type]  # it checks them
    _check_no_graph(values["instance"], values["name"], *values["aliases"])
    inputs, outputs = _declared_ports(name, made)
    responds = made.on_response is not Component.on_response
    made.declaration = register(
        ComponentDeclaration(
            handler=_stand_in(made),
            response_handler=_stand_in(made) if responds else None,
            component=made,
            inputs=inputs,
            outputs=outputs,
            kind=KIND,
            signature="node",
            **values,
            **own,
        )
    )
    logging_components.cache_clear()
    return made.declaration


def _check_no_graph(instance: str, *names: str) -> None:
    for name in names:
        if (instance, name) in GRAPHS:
            raise InvalidJobTypeError(
                f"component {name!r}: flow.graph has given this name to a graph in instance "
                f"{instance!r}; rename one of them."
            )


def _stand_in(made: type[Any]) -> Callable[..., Any]:
    """Return what stands for the code of a component, which its companion calls."""

    def handler(job: Job, *response: Any) -> Any:
        raise AssertionError("the companion of components calls them")

    handler.__module__, handler.__qualname__ = made.__module__, made.__qualname__
    handler.__doc__ = made.__doc__
    return handler


def _declared_ports(
    name: str, made: type[Any]
) -> tuple[dict[str, PortOptions], dict[str, PortOptions]]:
    sides: dict[str, dict[str, PortOptions]] = {"in": {}, "out": {}}
    members = {name: value for base in reversed(made.__mro__) for name, value in vars(base).items()}
    for attribute in sorted(members):
        port = members[attribute]
        if not isinstance(port, DeclaredPort):
            continue
        if attribute in dir(Component):
            raise InvalidJobTypeError(
                f"component {name!r}: port {attribute!r} is named like a method of components; "
                f'name the attribute otherwise: {attribute}_port = flow.In(name="{attribute}").'
            )
        try:
            options = port.options
        except InvalidPortError as error:
            raise InvalidJobTypeError(f"component {name!r}: {error}") from error
        if options.name in sides[port.direction]:
            raise InvalidJobTypeError(
                f"component {name!r} declares {port.direction}-port {options.name!r} twice."
            )
        sides[port.direction][options.name] = options
    return sides["in"], sides["out"]


def _of_function(name: str, function: Any, outs: Sequence[str]) -> type[Component]:
    """Return the class of a function: its parameters are in-ports, its result goes out."""
    names: list[str] = []
    members: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            members["any_in"] = AnyIn()
            continue
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise InvalidJobTypeError(
                f"component {name!r}: parameter {parameter.name!r} cannot be given by its name; "
                "each parameter is an in-port, and **more are all others."
            )
        default = NOTHING if parameter.default is parameter.empty else parameter.default
        names.append(parameter.name)
        members[f"in_{parameter.name}"] = In(default=default, name=parameter.name)
    for out in outs:
        port = AnyOut() if out == ANY else Out(name=out)
        members["any_out" if out == ANY else f"out_{out}"] = port
    members |= {
        "perform": _performing(function, names, outs[0] if outs else "out"),
        "__doc__": function.__doc__,
        "__module__": function.__module__,
        "__qualname__": function.__qualname__,
    }
    return type(function.__name__, (Component,), members)


def _performing(function: Any, names: list[str], out: str) -> Callable[[Component], None]:
    """Return the method that calls the function with one value of each port."""

    def perform(self: Component) -> None:
        has_any = "any_in" in type(self).__dict__
        more = [port for port in self.inputs if port not in names] if has_any else []
        ports, outputs = [*names, *more], self.outputs
        for values in self.each(*ports):
            given = values if len(ports) > 1 else (values,)
            for port, value in _results(self, function(**dict(zip(ports, given, strict=True)))):
                outputs[port or out].write(_checked_result(self, value))

    return perform


def _checked_result(self: Component, value: Any) -> Any:
    """Return what a function has made; raise `FlowError` for WAIT."""
    if value is WAIT or value is WAIT_FOR or isinstance(value, WAIT_FOR):
        raise FlowError(
            f"component {self.declaration.name!r} is a function and returned {value!r}; what waits "
            "for an answer is a class: a flow.Component with perform and on_response(response)."
        )
    return value


def _results(self: Component, result: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a function has returned or yielded, with the port that it named, if any."""
    if not inspect.isgenerator(result):
        value = self.awaited(result)
        yield from [] if value is NOTHING else [("", value)]
        return
    for made in result:
        if isinstance(made, tuple) and len(made) == 2 and _is_out_port(self, made[0]):
            yield made[0], made[1]
        else:
            yield "", made


def _is_out_port(self: Component, name: Any) -> bool:
    """Return whether this is an out-port; of those that are declared the node may have no row."""
    declared = self.declaration.outputs
    is_declared = isinstance(name, str) and (name in declared or ANY in declared)
    return is_declared or name in self.outputs


def find_component(instance: str, given: Any) -> ComponentDeclaration:
    """Return the declaration of a component, by its name, class or function.

    Raise `UnknownComponentError`.
    """
    declared = getattr(given, "declaration", None)
    if isinstance(declared, ComponentDeclaration) and declared.instance == instance:
        return declared
    if callable(given):
        place = (getattr(given, "__module__", ""), getattr(given, "__qualname__", ""))
        for other in all_components(instance):
            if (other.handler.__module__, other.handler.__qualname__) == place:
                return other
    found = get_declared(instance, given) if isinstance(given, str) else None
    if isinstance(found, ComponentDeclaration):
        return found
    raise UnknownComponentError(_not_declared(instance, given, declared))


def _not_declared(instance: str, given: Any, elsewhere: Any) -> str:
    if isinstance(elsewhere, ComponentDeclaration):
        return (
            f"component {elsewhere.name!r} is declared for instance {elsewhere.instance!r}, not "
            f"for {instance!r}."
        )
    graphs = [name for inst, name in GRAPHS if inst == instance]
    known = [*(declared.name for declared in all_components(instance)), *graphs]
    return f"component {given!r:.100} is not declared{nearest_name(str(given), known)}"


def declare_standard(instance: str) -> None:
    """Declare the standard components, which the default instance has, in another one."""
    for declared in all_components(DEFAULT):
        if declared.component.__module__.startswith(f"{__package__}."):
            register(replace(declared, instance=instance))


def all_components(instance: str) -> list[ComponentDeclaration]:
    """Return all declared components of an instance, by their names."""
    found = [d for d in get_all_declared(instance) if isinstance(d, ComponentDeclaration)]
    return sorted(found, key=lambda declared: declared.name)


@cache  # until another component is declared
def logging_components(instance: str) -> frozenset[str]:
    """Return all names of the components that want what they read and write to be logged."""
    wanted = [declared for declared in all_components(instance) if declared.log_data]
    return frozenset(name for declared in wanted for name in (declared.name, *declared.aliases))


def components(queue: str | None = None, *, instance: str = DEFAULT) -> list[dict[str, Any]]:
    """Return the declared components, or those of a queue, as data; graphs are not among them.

    Sensitive fields are masked, as everywhere where people read them.
    """
    return [
        {
            "name": declared.name,
            "queue": declared.queue,
            "description": inspect.cleandoc(declared.component.__doc__ or ""),  # not a base's
            "inputs": _as_data(declared.inputs, instance),
            "outputs": _as_data(declared.outputs, instance),
            "public": declared.public,
            **declared.meta,
        }
        for declared in all_components(instance)
        if queue is None or declared.queue == queue
    ]


def _as_data(ports: Mapping[str, PortOptions], instance: str) -> dict[str, dict[str, Any]]:
    return {
        name: {
            "type": port.type,
            "mode": port.mode,
            "channels": list(port.channels),
            **_default_as_data(port, instance),
            **port.meta,
        }
        for name, port in ports.items()
    }


def _default_as_data(port: PortOptions, instance: str) -> dict[str, Any]:
    if port.default is NOTHING:
        return {}
    [default] = without_fields({port.name: port.default}, sensitive_fields(instance)).values()
    return {"default": default}
