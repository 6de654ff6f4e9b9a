"""A TCP connection that a test can cut, or let fall silent."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal


class Proxy:
    """Listens on a port of its own and passes everything on to a target.

    That is a host and a port, or the path of a socket.
    """

    def __init__(self, target: tuple[str, int] | str) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.accepted = 0
        self.new: Literal["pass", "refuse", "swallow"] = "pass"
        """What becomes of new connections."""
        self._open: list[socket.socket] = []
        self._swallowed: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close all connections that are there."""
        while self._open:
            with self._open.pop() as end, suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def fall_silent(self) -> None:
        """Swallow all that is sent on the connections that are there, as a firewall drops it."""
        self._swallowed |= set(self._open)

    def close(self) -> None:
        """Stop listening."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.accepted += 1
                if self.new == "refuse":
                    near.close()
                    continue
                self._open.append(near)
                if self.new == "pass":
                    self._connect(near)

    def _connect(self, near: socket.socket) -> None:
        far = socket.socket(socket.AF_UNIX if isinstance(self._target, str) else socket.AF_INET)
        far.connect(self._target)
        self._open.append(far)
        for pair in ((near, far), (far, near)):
            threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if source not in self._swallowed:
                    sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy(target: tuple[str, int] | str) -> Iterator[Proxy]:
    """Run a proxy for as long as the context lasts."""
    running = Proxy(target)
    try:
        yield running
    finally:
        running.close()
