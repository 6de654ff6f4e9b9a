"""Gives up the worker of a process that is known to be dead: nobody need wait three beats."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from django.db import Error, connections

from hipq_django.conf.instances import get_instance
from hipq_django.database.errors import in_one_line
from hipq_django.models import Worker
from hipq_django.processes.own_connections import adopt

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = logging.getLogger("hipq_django")


def bury(instance: str, rows: Sequence[int]) -> None:
    """Mark these workers lost, unless they ended; others take their jobs over.

    Once: where the database is away, those that find them silent do it.
    """
    using = get_instance(instance).database
    adopt(using)
    live = Worker.objects.using(using).filter(pk__in=rows, state__in=Worker.LIVE)
    try:
        lost = [worker.name for worker in live]
        live.update(state=Worker.State.LOST)
        for name in lost:
            logger.error("worker=%s event=lost: its process died; its jobs are taken over", name)
    except Error as error:
        logger.warning("rows=%s of a dead process: %s", list(rows), in_one_line(error))
    finally:
        connections.close_all()
