"""The network between the project and PostgreSQL: it can be cut, go silent, be slow, lose replies.

It understands of PostgreSQL's protocol only where a client asks for a commit.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 65_536

DEAD_SECONDS = 10.0
"""After how long a client is told that a silent connection is dead.

The system finds that out by libpq's options `keepalives_idle` and `tcp_user_timeout`.
"""


class Network:
    """What is wrong with the network now; its connections look before each piece of data."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.latency: tuple[float, float] | None = None
        """How long each piece takes each way, in seconds."""
        self.is_silent = False
        """Whether connections that are opened now never hear anything."""
        self.lose_commits = 0.0
        """The share of commits that are carried out, and whose reply never arrives."""
        self.lose_requests = 0.0
        """The share of commits that never reach the server."""
        self.tear = 0.0
        """The share of pieces that break off in the middle, with their connection."""

    def heal(self) -> None:
        """Let everything through again; what was silent or closed stays so."""
        self.latency, self.is_silent = None, False
        self.lose_commits = self.lose_requests = self.tear = 0.0

    def happens(self, share: float) -> bool:
        """Draw whether something with this probability happens."""
        return bool(share) and self.chance.random() < share


class Proxy:
    """Listens on a TCP port and passes everything on to the socket of a server."""

    def __init__(self, target: str, network: Network) -> None:
        self.network = network
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = int(self._listener.getsockname()[1])
        self._links: list[Link] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close all connections that are there."""
        for link in self._forget():
            link.close()

    def silence(self) -> None:
        """Swallow what all connections that are there send from now on; close none of them."""
        for link in self._forget():
            link.fall_silent()

    def close(self) -> None:
        """Stop listening."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _forget(self) -> list[Link]:
        links, self._links = self._links, []
        return links

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with suppress(OSError):
                link = Link(near, _connected(self._target, near), self.network)
                self._links.append(link)
                link.start()  # not before it can be cut: a client may have its answer at once


def _connected(target: str, near: socket.socket) -> socket.socket:
    far = socket.socket(socket.AF_UNIX)
    try:
        far.connect(target)
    except OSError:
        far.close()
        near.close()
        raise
    return far


class Link:
    """One connection: a thread for each direction, and one more that delivers what is delayed."""

    def __init__(self, near: socket.socket, far: socket.socket, network: Network) -> None:
        self._near, self._far, self._network = near, far, network
        self.is_silent = network.is_silent
        self._drops_reply = False

    def start(self) -> None:
        """Pass on what comes from either side, until one of them ends."""
        near, far = self._near, self._far
        if self.is_silent:
            self.fall_silent()
        for source, sink, passes in ((near, far, self._may_ask), (far, near, self._may_reply)):
            way: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
            threading.Thread(target=self._take, args=(source, way, passes), daemon=True).start()
            threading.Thread(target=self._deliver, args=(way, sink), daemon=True).start()

    def fall_silent(self) -> None:
        """Pass nothing on any more, and let the client find out later."""
        self.is_silent = True
        dying = threading.Timer(DEAD_SECONDS, self.close)
        dying.daemon = True
        dying.start()

    def close(self) -> None:
        """End both halves."""
        for end in (self._near, self._far):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _may_ask(self, data: bytes) -> bool:
        """Whether a client's request is passed on; False closes the connection."""
        if b"COMMIT" in data:
            self._drops_reply = self._network.happens(self._network.lose_commits)
            return not self._network.happens(self._network.lose_requests)
        return True

    def _may_reply(self, data: bytes) -> bool:
        """Whether a server's reply is passed on; by then it has done what it was asked for."""
        return not (self._drops_reply and data)

    def _take(
        self,
        source: socket.socket,
        way: SimpleQueue[tuple[float, bytes]],
        passes: Callable[[bytes], bool],
    ) -> None:
        network = self._network
        with suppress(OSError):
            while data := source.recv(CHUNK):
                if self.is_silent:
                    continue
                if not passes(data):
                    break
                if network.happens(network.tear):
                    way.put((0.0, data[: len(data) // 2]))
                    break
                late = network.chance.uniform(*network.latency) if network.latency else 0.0
                way.put((time.monotonic() + late, data))
        way.put((0.0, b""))

    def _deliver(self, way: SimpleQueue[tuple[float, bytes]], sink: socket.socket) -> None:
        with suppress(OSError):
            while True:
                due, data = way.get()
                if not data:
                    break
                time.sleep(max(due - time.monotonic(), 0.0))
                sink.sendall(data)
        if self.is_silent and sink is self._near:
            return  # the server has ended it: the client must not hear of that
        self.close()
        for end in (self._near, self._far):
            with suppress(OSError):
                end.close()
