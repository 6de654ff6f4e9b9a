"""Listens for what `notify` sends, from a thread with a connection of its own."""

from __future__ import annotations

import logging
import threading
import uuid
from contextlib import closing
from typing import TYPE_CHECKING, Any

from django.db import Error, connections

from hipq_django.database.errors import in_one_line
from hipq_django.database.notify import channel_of
from hipq_django.processes.backoff import BackOff
from hipq_django.processes.own_connections import adopt, look_after

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hipq_django.conf.instances import InstanceSettings

logger = logging.getLogger("hipq_django")

PROOF_SECONDS = 3.0
"""How long a message to ourselves may take; a pooler that shares connections never delivers it."""


class Listener:
    """Calls `wake` with the name of a queue of the worker's that has something new.

    The name is empty where it may be any. Polling goes on beside it.
    """

    def __init__(
        self, config: InstanceSettings, queues: Sequence[str], wake: Callable[[str], None]
    ) -> None:
        self._config = config
        self._queues = queues
        self._wake = wake
        self._stop = threading.Event()
        self.is_listening = False
        """Whether messages are known to arrive; else the worker must poll more often."""

    def open(self) -> None:
        """Start the thread, where the database has such messages and the setting wants them."""
        if self._config.notify and connections[self._config.database].vendor == "postgresql":
            threading.Thread(target=self._run, name="hipq-listener", daemon=True).start()

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()

    def _run(self) -> None:
        adopt(self._config.database)
        back_off = BackOff()
        while not self._stop.is_set():
            try:
                if not self._listen(back_off):
                    break
            except Error as error:
                logger.warning("listening for work failed: %s", in_one_line(error))
            self.is_listening = False
            connections.close_all()
            self._stop.wait(back_off.next_seconds())
        connections.close_all()

    def _listen(self, back_off: BackOff) -> bool:
        """Listen until stopped; return False where no message ever arrives."""
        connection = connections[self._config.database]
        with connection.cursor() as cursor:
            cursor.execute(f'LISTEN "{channel_of(self._config.name)}"')
        driver: Any = connection.connection
        if not callable(getattr(driver, "notifies", None)):
            return False  # psycopg 2 cannot wait for messages
        with connection.wrap_database_errors:
            if not self._is_heard(driver):
                logger.warning(
                    "NOTIFY does not arrive, as behind a pooler that shares connections between "
                    "transactions: workers poll instead. HIPQ[%r]['NOTIFY'] = False says so.",
                    self._config.name,
                )
                return False
            back_off.reset()
            self.is_listening = True
            self._wake("")
            while not self._stop.is_set():
                for message in driver.notifies(timeout=1.0):
                    if not self._queues or message.payload in self._queues:
                        self._wake(message.payload)
        return True

    def _is_heard(self, driver: Any) -> bool:
        """Whether a message that is sent on another connection arrives on this one."""
        proof = str(uuid.uuid4())
        with closing(connections[self._config.database].copy()) as other:
            look_after(other)
            other.cursor().execute(
                "SELECT pg_notify(%s, %s)", [channel_of(self._config.name), proof]
            )
        messages = driver.notifies(timeout=PROOF_SECONDS)
        return any(message.payload == proof for message in messages)
