"""The verbs that methods of models call, and their modules; `verbs.py` loads them by this list."""

from hipq_django.flow.aliases import Aliases as Aliases
from hipq_django.flow.connecting import PORT_VERBS as PORT_VERBS, move as move
from hipq_django.flow.creating import set_ports as set_ports
from hipq_django.flow.family import (
    adopt as adopt,
    delete as delete,
    disown as disown,
    is_terminated as is_terminated,
)
from hipq_django.flow.graphs.applying import apply as apply, start as start
from hipq_django.flow.lifecycle import (
    lock as lock,
    pause as pause,
    refresh_lock as refresh_lock,
    resume as resume,
    run as run,
    terminate as terminate,
    unlock as unlock,
)
from hipq_django.flow.ports import Ports as Ports
from hipq_django.flow.publishing import publish as publish
from hipq_django.flow.state import State as State
from hipq_django.flow.status import info_of as info_of, is_idle as is_idle, status_of as status_of
