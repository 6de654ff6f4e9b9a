"""The components and graphs of the example, found because the module is called `flows`."""

from typing import Any

from django.utils import timezone

from hipq_django import flow

# Orders: checked, paid by the bank, decided by a person where they are doubtful, and shipped.


@flow.component("shop.fraud", public=True)
class Fraud(flow.Component):
    """Lets small orders pass; others go to a person."""

    order, limit = flow.In(dict), flow.In(int, default=900)
    ok, review = flow.Out(), flow.Out()

    def perform(self) -> None:
        """Look at each order."""
        for order, limit in self.each("order", "limit"):
            port = self.ok if order["total"] <= limit else self.review
            port.write(order)


@flow.component("shop.paid", public=True)
def paid(end: Any) -> Any:
    """Make a parcel of what was paid."""
    return {"id": end["data"]["id"], "receipt": end["result"]["receipt"]}


ORDERS = flow.graph(
    "shop.orders",
    {
        "nodes": {
            "fraud": {"component": "shop.fraud"},
            "human": {
                "component": "flow.widget",
                "inputs": {"order": {}},
                "outputs": {"yes": {}, "no": {}},
            },
            "pay": {"jobs": "pay_order", "key": "id", "limit": 4},
            "paid": {"component": "shop.paid"},
            "ship": {"jobs": "ship_order", "key": "id", "limit": 4},
        },
        "edges": [
            "fraud.ok -> pay.in",
            "fraud.review -> human.order",
            "human.yes -> pay.in",
            "pay.out -> paid.end",
            "paid.out -> ship.in",
        ],
        "inputs": {"order": "fraud.order"},
        "outputs": {
            "shipped": "ship.out",
            "failed": ["pay.error", "ship.error"],
            "refused": "human.no",
        },
    },
)


# Readings: a source with an alarm, a filter, a variable, and a total of each day that others show.

FIVE_MINUTES = 300
DAYS = 7
"""So many days a total remembers."""


@flow.component("lab.readings", public=True)
class Readings(flow.Component):
    """Takes a reading, and comes again after some seconds."""

    out = flow.Out()

    def perform(self, seconds: float = FIVE_MINUTES) -> None:
        """Take one, and set the alarm."""
        number = self.state.get("number", 0)
        self.out.write({"day": timezone.localdate().isoformat(), "value": number % 10})
        self.state.set(number=number + 1)
        self.run(wait=seconds)


@flow.component("lab.above", public=True)
class Above(flow.Component):
    """Hands on what is above a limit."""

    reading, limit = flow.In(dict), flow.In(int, default=4)
    out = flow.Out()

    def perform(self) -> None:
        """Look at each reading."""
        for reading, limit in self.each("reading", "limit"):
            if reading["value"] > limit:
                self.out.write(reading)


@flow.component("lab.rated", public=True)
class Rated(flow.Component):
    """Multiplies readings by the rate of the moment, which somebody may change at any time."""

    reading, rate = flow.In(dict), flow.In(mode="memory", default=1)
    out = flow.Out()

    def perform(self) -> None:
        """Join each reading with the rate."""
        for reading, rate in self.each("reading", "rate"):
            self.out.write({**reading, "value": reading["value"] * rate})


@flow.component("lab.daily_total", public=True)
class DailyTotal(flow.Component):
    """Sums up day by day, and publishes each total."""

    reading = flow.In(dict)
    out = flow.Out(channels=["/lab/total"])

    def perform(self) -> None:
        """Add what has come."""
        days = self.state.get("days", {})
        for reading in self.each("reading"):
            day = reading["day"]
            before = days.get(day, {"count": 0, "total": 0})
            total = {"count": before["count"] + 1, "total": before["total"] + reading["value"]}
            days = dict(sorted({**days, day: total}.items())[-DAYS:])
            self.state.set(days=days)
            with flow.group(as_default=True):  # it replaces the one before, also at subscribers
                self.out.write({"day": day, **total})


@flow.component("lab.board", public=True)
class Board(flow.Component):
    """Shows the newest total of each day, of whichever graph publishes it."""

    total = flow.In(dict)

    def perform(self) -> None:
        """Note what is to be shown."""
        for total in self.each("total"):
            self.state.set({total["day"]: total["total"]})


def readings(seconds: float = FIVE_MINUTES, *, with_all: bool = False) -> dict[str, Any]:
    """Return the graph of the readings; `with_all` it has a second total, of all readings."""
    nodes: dict[str, Any] = {
        "source": {"component": "lab.readings", "args": [seconds], "init": True},
        "above": {"component": "lab.above"},
        "rated": {"component": "lab.rated"},
        "total": {"component": "lab.daily_total"},
    }
    edges = [
        "source.out -> above.reading",
        "above.out -> rated.reading",
        "rated.out -> total.reading",
    ]
    if with_all:
        own = {"out": {"channels": ["/lab/all"]}}
        nodes["all"] = {"component": "lab.daily_total", "outputs": own}
        edges.append("source.out -> all.reading")
    return {"nodes": nodes, "edges": edges, "inputs": {"rate": "rated.rate"}}


READINGS = flow.graph("lab.readings_graph", readings())
BOARD = flow.graph(
    "lab.board_graph",
    {
        "nodes": {
            "board": {"component": "lab.board", "inputs": {"total": {"channels": ["/lab/total"]}}}
        }
    },
)
"""Another graph, which knows only the channel."""


# Fibonacci's numbers, by a ring: what belongs together travels in one message.


@flow.component("fibonacci.first", public=True)
def first(n: Any) -> Any:
    """Begin with the first two numbers."""
    return {"pair": [1, 1], "n": n, "left": n}


@flow.component("fibonacci.step", public=True)
def step(x: Any) -> Any:
    """Go on to the next number, or tell the last one."""
    one, two = x["pair"]
    if x["left"] <= 2:
        return {"result": {"n": x["n"], "number": two}}
    return {"again": {**x, "pair": [two, one + two], "left": x["left"] - 1}}


FIBONACCI = flow.graph(
    "fibonacci",
    {
        "nodes": {
            "first": {"component": "fibonacci.first"},
            "step": {"component": "fibonacci.step"},
            "choose": {
                "component": "flow.key_value",
                "outputs": {"again": {}, "result": {}},
            },
        },
        "edges": ["first.out -> step.x", "step.out -> choose.in", "choose.again -> step.x"],
        "inputs": {"n": "first.n"},
        "outputs": {"result": "choose.result"},
    },
)
