"""The supplier: takes orders by HTTP, answers through Kafka."""

import json
import logging
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

logger = logging.getLogger("supplier")

TOPIC = "order-answers"


class Producer(Protocol):
    """What the supplier needs of a Kafka producer."""

    def produce(self, topic: str, *, key: bytes, value: bytes) -> None:
        """Take a message; the key decides about its partition."""

    def flush(self, timeout: float) -> int:
        """Wait until the messages are with the broker; return how many are not."""


class Supplier(ThreadingHTTPServer):
    """Confirms POST /orders with 202; the answer is a message on the topic."""

    request_queue_size = 100

    def __init__(self, producer: Producer, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), SupplierRequestHandler)
        self._producer = producer

    @property
    def address(self) -> str:
        """The URL that orders are sent to; where no port was given, a free one was chosen."""
        return f"http://127.0.0.1:{self.server_port}/orders"

    def take(self, order: dict[str, Any]) -> None:
        """Answer an order."""
        reference = str(order["reference"])
        for message in messages(reference):
            self._producer.produce(TOPIC, key=reference.encode(), value=message)
        self._producer.flush(10)
        logger.info("%s: answered", reference)


def messages(reference: str) -> list[bytes]:
    """Return what the supplier says about an order; the number of the order decides."""
    number = int(reference.rpartition("-")[2])
    confirmed = _message(reference, status="confirmed", days=number % 7 + 1)
    if number % 5 == 1:
        return [confirmed, confirmed]  # twice
    if number % 5 == 2:
        return [_message(reference, status="refused", reason="out of stock")]
    if number % 5 == 3:
        return [b'{"reference": "\xff', confirmed]  # cut off, and then in full
    if number % 5 == 4:
        return [_message("their-7", customer="another shop", status="shipped"), confirmed]
    return [confirmed]


def _message(reference: str, *, customer: str = "hipq-shop", **content: Any) -> bytes:
    return json.dumps({"customer": customer, "reference": reference, **content}).encode()


class SupplierRequestHandler(BaseHTTPRequestHandler):
    """One request to the supplier."""

    server: Supplier

    def do_POST(self) -> None:
        """Take an order: 202; 400 for what is none."""
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        try:
            self.server.take(json.loads(body))
        except (ValueError, KeyError, TypeError) as error:
            self._reply(400, {"error": repr(error)})
        else:
            self._reply(202, {"status": "accepted"})

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name it is called by
        """Keep quiet about each HTTP request."""
        logger.debug(format, *args)

    def _reply(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
