"""The public names of `hipq_django.flow` and their modules; the package loads them by this list."""

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
from hipq_django.flow.graphs.applying import astart as astart, start as start
from hipq_django.flow.graphs.checking import acheck as acheck, check as check
from hipq_django.flow.graphs.named import graph as graph
from hipq_django.flow.graphs.problem import Problem as Problem
from hipq_django.flow.grouping import agroup as agroup, group as group
from hipq_django.flow.logs import alog as alog, log as log
from hipq_django.flow.models import Node as Node
from hipq_django.flow.ports import Port as Port
from hipq_django.flow.publishing import apublish as apublish, publish as publish
from hipq_django.flow.values import NOTHING as NOTHING, Packet as Packet
