"""The bank's HTTP side: takes requests, works on them, calls back."""

import json
import logging
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from example_project.bank.behaviour import answers, behaviour_of, duration
from example_project.bank.ledger import Ledger
from example_project.bank.payment import Payment, parse_payment

logger = logging.getLogger("bank")

PAUSES_SECONDS = (1, 2, 4, 8)


class Bank(ThreadingHTTPServer):
    """Confirms POST /payments with 202 and answers later; GET /report tells its counts."""

    request_queue_size = 100

    def __init__(self, port: int = 0, *, seed: int = 0, slowest_seconds: float = 0.8) -> None:
        super().__init__(("127.0.0.1", port), BankRequestHandler)
        self.ledger = Ledger()
        self._seed = seed
        self._slowest_seconds = slowest_seconds

    @property
    def address(self) -> str:
        """The URL that payments are sent to; where no port was given, a free one was chosen."""
        return f"http://127.0.0.1:{self.server_port}/payments"

    def take(self, payment: Payment) -> None:
        """Take a payment, unless it is in flight already, and return at once."""
        request = self.ledger.take(payment)
        if request:
            Thread(target=self._work, args=(payment, request), daemon=True).start()

    def _work(self, payment: Payment, request: int) -> None:
        behaviour = behaviour_of(payment, self._seed)
        logger.info("%s, request %s: %s", payment.order, request, behaviour.value)
        bodies = answers(behaviour, payment, request)
        time.sleep(duration(payment, self._seed, self._slowest_seconds))
        # Before the call: once the shop knows the answer it may send the next order.
        self.ledger.release(payment, charged=any("response" in body for body in bodies))
        for body in bodies:
            call_back(payment.callback, body)
        self.ledger.finish()


class BankRequestHandler(BaseHTTPRequestHandler):
    """One request to the bank."""

    server: Bank

    def do_POST(self) -> None:
        """Confirm a payment with 202; refuse with 400 what is none."""
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        try:
            payment = parse_payment(self.headers["Idempotency-Key"], body)
        except ValueError as error:
            self._reply(400, {"error": str(error)})
        else:
            self.server.take(payment)
            self._reply(202, {"status": "accepted"})

    def do_GET(self) -> None:
        """Tell what the bank has in flight and what it has done."""
        self._reply(200, self.server.ledger.report())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name it is called by
        """Keep quiet about each HTTP request; what is done with it is logged."""
        logger.debug(format, *args)

    def _reply(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def call_back(url: str, answer: dict[str, Any]) -> None:
    """Send an answer; a site that is down or in trouble is called again a little later."""
    for pause in (*PAUSES_SECONDS, 0):
        status = post(url, answer)
        logger.info("called back: %s, status %s", answer, status)
        if status < 500:
            return
        time.sleep(pause)
    logger.error("gave up calling back: %s", answer)


def post(url: str, content: dict[str, Any]) -> int:
    """POST JSON and return the status; 503 where nobody is there."""
    headers = {"Content-Type": "application/json"}
    request = Request(url, data=json.dumps(content).encode(), headers=headers)  # noqa: S310 - a demo's own address
    try:
        with urlopen(request, timeout=10) as reply:  # noqa: S310 - calling back is what it does
            return int(reply.status)
    except HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 503
