"""Flows: work that lasts, takes data whenever it comes, and is seen and changed while it goes on.

Add `hipq_django.flow` to INSTALLED_APPS. Public names are loaded on first use (PEP 562), because
Django imports this package before models can be imported.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hipq_django.flow.aliases import (
        afind as afind,
        aget as aget,
        find as find,
        get as get,
    )
    from hipq_django.flow.base import Component as Component
    from hipq_django.flow.contexts import context as context
    from hipq_django.flow.declared_ports import (
        AnyIn as AnyIn,
        AnyOut as AnyOut,
        In as In,
        Out as Out,
    )
    from hipq_django.flow.declaring import component as component, components as components
    from hipq_django.flow.exceptions import (
        AliasTakenError as AliasTakenError,
        FamilyError as FamilyError,
        FilterError as FilterError,
        FlowError as FlowError,
        GraphError as GraphError,
        InvalidAliasError as InvalidAliasError,
        InvalidPortError as InvalidPortError,
        MessageTooLargeError as MessageTooLargeError,
        NameTakenError as NameTakenError,
        NodeDeletedError as NodeDeletedError,
        PortTypeError as PortTypeError,
        UnknownComponentError as UnknownComponentError,
        UnknownNodeError as UnknownNodeError,
        UnknownPortError as UnknownPortError,
    )
    from hipq_django.flow.explaining import aexplain as aexplain, explain as explain
    from hipq_django.flow.graphs.applying import (
        acheck as acheck,
        astart as astart,
        check as check,
        start as start,
    )
    from hipq_django.flow.graphs.named import graph as graph
    from hipq_django.flow.graphs.problem import Problem as Problem
    from hipq_django.flow.grouping import agroup as agroup, group as group
    from hipq_django.flow.logs import alog as alog, log as log
    from hipq_django.flow.models import Node as Node
    from hipq_django.flow.ports import Port as Port
    from hipq_django.flow.publishing import apublish as apublish, publish as publish
    from hipq_django.flow.values import NOTHING as NOTHING, Packet as Packet

_PLACES = {
    "aliases": ("afind", "aget", "find", "get"),
    "base": ("Component",),
    "declaring": ("component", "components"),
    "contexts": ("context",),
    "declared_ports": ("AnyIn", "AnyOut", "In", "Out"),
    "exceptions": (
        "AliasTakenError", "FamilyError", "FilterError", "FlowError", "GraphError",
        "InvalidAliasError", "InvalidPortError", "MessageTooLargeError", "NameTakenError",
        "NodeDeletedError", "PortTypeError", "UnknownComponentError", "UnknownNodeError",
        "UnknownPortError",
    ),
    "explaining": ("aexplain", "explain"),
    "graphs.applying": ("acheck", "astart", "check", "start"),
    "graphs.named": ("graph",),
    "graphs.problem": ("Problem",),
    "grouping": ("agroup", "group"),
    "logs": ("alog", "log"),
    "models": ("Node",),
    "ports": ("Port",),
    "publishing": ("apublish", "publish"),
    "values": ("NOTHING", "Packet"),
}  # fmt: skip
_MODULES = {name: module for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES[name]}")
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
