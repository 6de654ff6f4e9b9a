"""Groups: how messages are written and read inside of a block, with one log entry for all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.utils.asyncio import async_unsafe

from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.database.twins import block_twin
from hipq_django.flow.contexts import Entry, current_group, current_node, set_group
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.logs import record


@async_unsafe
def _wait() -> None:
    """Stand for the write of the log's entry, which waits for the database."""


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
    for option, given in (("log", log), ("notify", notify), ("as_default", as_default)):
        if given not in (None, True, False):
            raise FlowError(f"flow.group: {option}={given!r:.100}; give True or False.")
    entry = Entry() if current_group().entry is None else None
    if entry is not None and current_node() is None:
        _wait()
    with set_group(log, notify, as_default, entry):
        yield
    if entry is not None:
        record(entry, instance, using)


agroup = block_twin(group)
