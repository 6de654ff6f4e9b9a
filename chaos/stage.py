"""What a fault has its hands on: the database, the workers, the network, the disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from chaos.databases import Postgres, session

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from random import Random

    from chaos.clients import Client
    from chaos.databases import Database
    from chaos.disk import Disk
    from chaos.fleet import Fleet
    from chaos.ledger import Ledger
    from chaos.proxy import Proxy


@dataclass
class Stage:
    """A cell while it runs."""

    database: Database
    fleet: Fleet
    ledger: Ledger
    client: Client
    chance: Random
    beat: float
    """Seconds between two heartbeats of a worker; after three without one it is lost."""
    wired: Proxy | None = None
    small: Disk | None = None
    turns: Iterator[int] = field(default_factory=count)
    """Numbers for faults that take one thing after the other."""

    @property
    def postgres(self) -> Postgres:
        """The database, in a cell that is only for PostgreSQL."""
        assert isinstance(self.database, Postgres)
        return self.database

    @property
    def proxy(self) -> Proxy:
        """The network, in a cell that has one."""
        assert self.wired is not None
        return self.wired

    @property
    def disk(self) -> Disk:
        """The small disk, in a cell that has one."""
        assert self.small is not None
        return self.small

    @property
    def silence(self) -> float:
        """After how many seconds without a beat a worker is lost."""
        return 3 * self.beat

    def a_worker(self) -> subprocess.Popen[bytes]:
        """Return any of the workers."""
        return self.chance.choice(self.fleet.running)

    def run(self, *statements: str) -> None:
        """Run statements in a session of the harness."""
        with session(self.database) as opened:
            for statement in statements:
                opened.execute(statement)
