"""Groups: how messages are written and read inside of a block, with one log entry for all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.database.twins import block_twin
from hipq_django.flow.contexts import Entry, current_group, set_group
from hipq_django.flow.logs import record


@contextmanager
def group(
    *,
    log: bool | None = None,
    notify: bool | None = None,
    as_default: bool | None = None,
    instance: str = DEFAULT,
) -> Iterator[None]:
    """Log what is read and written inside of the block as one entry, if that is logged at all.

    With `log=False` nothing of it is logged, also when a message is read later; with
    `notify=False` no node is woken by it; with `as_default=True` what is written becomes the
    default of its port. Options that are not given are those of the outer block. In a run the
    entry is that of the run, or of the tuple of `each`.
    """
    using = get_instance(instance).database
    entry = Entry() if current_group().entry is None else None
    with set_group(log, notify, as_default, entry):
        yield
    if entry is not None:
        record(entry, instance, using)


agroup = block_twin(group)
