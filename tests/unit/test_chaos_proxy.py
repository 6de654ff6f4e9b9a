"""The network of the crash tests: what it does to a connection, with a server that answers."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from chaos.ledger import now
from chaos.proxy import Network, Proxy

pytestmark = pytest.mark.embedded  # no database is touched

PATIENCE_SECONDS = 30.0
SHORT_SECONDS = 0.3


class Server:
    """Answers each piece of data by the same, and remembers it."""

    def __init__(self, path: str) -> None:
        self.heard: list[bytes] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        threading.Thread(target=self._run, daemon=True).start()

    def await_heard(self, data: bytes) -> None:
        """Wait until this was the last that came."""
        until = time.monotonic() + PATIENCE_SECONDS
        while self.heard[-1] != data:
            assert time.monotonic() < until, self.heard
            time.sleep(0.001)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                end, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=[end], daemon=True).start()

    def _answer(self, end: socket.socket) -> None:
        with end, suppress(OSError):
            while data := end.recv(1_000):
                self.heard.append(data)
                end.sendall(data)


@pytest.fixture
def server() -> Iterator[Server]:
    with TemporaryDirectory(prefix="hipq-") as folder:  # a socket's path has to be short
        running = Server(str(Path(folder) / "socket"))
        yield running
        running.close()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    running = Proxy(server._listener.getsockname(), Network(Random(1)))
    yield running
    running.close()


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_SECONDS) as end:
        assert asked(end, b"hello") == b"hello"
        yield end


def asked(end: socket.socket, data: bytes) -> bytes:
    """Send something and return the answer, nothing where the connection ends instead."""
    with suppress(ConnectionError):
        end.sendall(data)
        return end.recv(1_000)
    return b""


def test_a_connection_that_is_cut_ends(proxy: Proxy, client: socket.socket) -> None:
    proxy.cut()

    assert asked(client, b"again") == b""


def test_a_silent_connection_hears_nothing_and_does_not_end(
    proxy: Proxy, server: Server, client: socket.socket
) -> None:
    proxy.silence()

    client.settimeout(SHORT_SECONDS)
    with pytest.raises(TimeoutError):
        asked(client, b"again")
    assert server.heard == [b"hello"]


def test_a_commit_whose_reply_is_lost_was_carried_out(
    proxy: Proxy, server: Server, client: socket.socket
) -> None:
    proxy.network.lose_commits = 1.0

    assert asked(client, b"SELECT 1") == b"SELECT 1"
    assert asked(client, b"COMMIT") == b""
    assert server.heard[-1] == b"COMMIT"


def test_a_slow_network_takes_its_time_each_way(proxy: Proxy, client: socket.socket) -> None:
    proxy.network.latency = (SHORT_SECONDS, SHORT_SECONDS)
    began = now()

    assert asked(client, b"again") == b"again"
    assert now() - began >= 2 * SHORT_SECONDS
