"""Components that tests run."""

import threading
from collections.abc import Callable
from typing import Any

import hipq_django as hipq
from hipq_django import flow


class CodeError(Exception):
    """What the components of tests raise."""


@flow.component("t.recorder")
class Recorder(flow.Component):
    """Does what its state says, and records each call in the class."""

    a, b = flow.In(), flow.In()
    out = flow.Out()
    calls: list[str] = []
    seen: list[Any] = []

    def startup(self) -> None:
        self.calls.append("startup")
        self._do(self.state.get("startup", []))

    def perform(self, *args: Any) -> Any:
        self.calls.append("perform")
        self.seen.append((args, flow.get(self.node.pk).status))
        return self._do(self.state.get("perform", []))

    def on_response(self, response: Any) -> None:
        self.calls.append("on_response")

    def shutdown(self) -> None:
        self.calls.append("shutdown")
        self._do(self.state.get("shutdown", []))

    def _do(self, things: list[str]) -> Any:
        done = None
        for thing in things:
            if thing == "raise":
                raise CodeError("as asked")
            done = getattr(self, thing)()
        return done if done is hipq.WAIT else None

    def ask(self) -> Any:
        self.job.set_key(f"recorder-{self.job.pk}")
        return hipq.WAIT

    def greet(self) -> None:
        self.out.write("hello")

    def run_thrice(self) -> None:
        if self.state.get("left", 2):
            self.state.set(left=self.state.get("left", 2) - 1)
            self.run()

    def read_and_raise(self) -> None:
        self.out.write(self.a.read())
        raise CodeError("as asked")


@flow.component("t.double")
class Double(flow.Component):
    """Doubles numbers."""

    number = flow.In(int)
    out = flow.Out()

    def perform(self) -> None:
        for number in self.each("number"):
            self.out.write(2 * number)


@flow.component("t.add")
def add(x: Any, y: Any = 1) -> Any:
    """Add."""
    return x + y


@flow.component("t.logged", log_data=True)
def logged(x: Any) -> Any:
    """Is logged."""
    return x


@flow.component("t.pair", outs=["left", "right"])
def pair(x: Any) -> Any:
    """Yield to two ports."""
    yield "left", x
    yield "right", x


@flow.component("t.sum")
class Sum(flow.Component):
    """Sums up what it gets."""

    number = flow.In()
    out = flow.Out()

    def perform(self) -> None:
        total = self.state.get("total", 0)
        for number in self.number:
            total += number
        self.state.set(total=total)
        self.out.write(total)


@flow.component("t.page")
class Page(flow.Component):
    """Takes all that lies there, and meanwhile writes to itself from outside of the run."""

    number = flow.In()
    out = flow.Out()

    def perform(self) -> None:
        for number in self.number:
            last = self.number.last
            assert last is not None
            if number == 0:
                flow.get(self.node.pk).inputs["number"].write(-1)
            self.out.write([number, last.value, self.job.pk])


@flow.component("t.wild")
class Wild(flow.Component):
    """Has ports that come into being when they are used."""

    any_in = flow.AnyIn(default=123)
    any_out = flow.AnyOut()

    def perform(self) -> None:
        pass


@flow.component("t.quiet", status_publish=False)
class Quiet(flow.Component):
    """Publishes no status."""

    def perform(self) -> None:
        pass


@flow.component("t.fast", runs_per_minute=5, runaway="terminate")
class Fast(flow.Component):
    """Must not run often."""

    def perform(self) -> None:
        Recorder.calls.append("fast")

    def shutdown(self) -> None:
        Recorder.calls.append("fast shutdown")


@flow.component("t.slowed", runs_per_minute=5)
class Slowed(flow.Component):
    """Is slowed if it runs often."""

    def perform(self) -> None:
        Recorder.calls.append("slowed")


@flow.component("t.fib")
class Fib(flow.Component):
    """Fibonacci's numbers by children."""

    n, out = flow.In(), flow.Out()

    def perform(self) -> None:
        if "n" not in self.state:
            n = self.n.read()
            if n <= 2:
                self.out.write(1)
                return
            self.state.set(n=n)
            self.spawn("one", "t.fib", data={"n": [n - 1]})
            self.spawn("two", "t.fib", data={"n": [n - 2]})
            self.suspend()
        children = [self.child("one"), self.child("two")]
        if not all(child and child.outputs["out"].has_data for child in children):
            self.suspend()
        self.out.write(sum(child.outputs["out"].read() for child in children if child))


@flow.component("t.parent_of_sum")
class ParentOfSum(flow.Component):
    """Feeds a summing child in its second run and reads the result in its third."""

    def perform(self) -> None:
        child = self.child("sum")
        if child is None:
            self.spawn("sum", "t.sum", run=False)
            self.run()
            self.suspend()
        elif "fed" not in self.state:
            self.state.set(fed=True)
            child.inputs["number"].write(5)
            child.inputs["number"].write(6)
            self.suspend()
        elif not child.outputs["out"].size:
            self.suspend()
        else:
            self.state.set(result=child.outputs["out"].read())


@flow.component("t.asks", timeout=600)
class Asks(flow.Component):
    """Waits for an answer."""

    question, answer = flow.In(), flow.Out()

    def perform(self) -> Any:
        question = self.question.read()
        if question is flow.NOTHING:
            self.suspend()
        self.job.set_key(f"question-{question}")
        self.state.set(asked=question)
        return hipq.WAIT

    def on_response(self, response: Any) -> None:
        if response == "bad":
            raise CodeError("as asked")
        self.answer.write([self.state["asked"], response])


@flow.component("t.cannot_take_its_answer", retry=hipq.Fixed(60, max_attempts=3))
class CannotTakeItsAnswer(flow.Component):
    """Raises when the answer has come; it is called with it again a minute later."""

    number = flow.In()

    def perform(self) -> Any:
        if self.number.read() is flow.NOTHING:
            return None
        self.job.set_key("asked")
        return hipq.WAIT

    def on_response(self, response: Any) -> None:
        Recorder.calls.append("on_response")
        raise CodeError(response)


@flow.component("t.poisoned", retry=hipq.Fixed(0, max_attempts=2))
class Poisoned(flow.Component):
    """Raises at some messages, which go to its port `error`."""

    x, out, error = flow.In(), flow.Out(), flow.Out()

    def perform(self) -> None:
        for x in self.each("x"):
            if x == "bad":
                raise CodeError("cannot take it")
            self.out.write(x)


@flow.component("t.both")
class Both(flow.Component):
    """Takes pairs."""

    a, b = flow.In(), flow.In()
    out = flow.Out()

    def perform(self) -> None:
        for a, b in self.each("a", "b"):
            self.out.write([a, b])


@flow.component("t.relay", runs_per_minute=1_000_000)
class Relay(flow.Component):
    """Writes on what it gets, whatever that is."""

    item = flow.In()
    out = flow.Out()

    def perform(self) -> None:
        for item in self.each("item"):
            self.out.write(item)


@flow.component("t.listener", runs_per_minute=1_000_000)
class Listener(flow.Component):
    """Counts what it hears."""

    item = flow.In(channels=["/flow"])

    def perform(self) -> None:
        self.state.set(heard=self.state.get("heard", 0) + len(list(self.item)))


@flow.component("t.parent_of_listener", runs_per_minute=1_000_000)
class ParentOfListener(flow.Component):
    """Has a child that listens to all that flows say."""

    def perform(self) -> None:
        if not self.children:
            self.spawn("listener", "t.listener")


@flow.component("t.sum_once")
class SumOnce(flow.Component):
    """Sums up what it gets in each run."""

    number = flow.In()
    out = flow.Out()

    def perform(self) -> None:
        numbers = list(self.number)
        if numbers:
            self.out.write(sum(numbers))


@flow.component("t.endless", runs_per_minute=1_000_000)
class Endless(flow.Component):
    """Runs for ever."""

    def perform(self) -> None:
        self.run()


@flow.component("t.cards", sensitive=["card"])
class Cards(flow.Component):
    """Takes orders with the numbers of cards, and raises at those that say so."""

    order = flow.In(dict)
    out = flow.Out()

    def perform(self) -> None:
        for order in self.each("order"):
            self.state.set(last=order)
            if order.get("bad"):
                raise CodeError(f"the card {order['card']} of {order['id']} was refused")
            self.out.write(order)


class Script(threading.local):
    """What the next run in this thread does."""

    perform: Callable[[Any], Any] | None = None


SCRIPT = Script()


@flow.component("t.scripted", retry=hipq.Fixed(0, max_attempts=2), timeout=60)
class Scripted(flow.Component):
    """Does what a test has just said, in the thread in which it said so."""

    item, out = flow.In(), flow.Out()

    def perform(self) -> Any:
        return SCRIPT.perform(self) if SCRIPT.perform else None

    def on_response(self, response: Any) -> None:
        if SCRIPT.perform:
            SCRIPT.perform(self)


@flow.component("t.scripted_patiently", retry=hipq.Fixed(3_600))
class ScriptedPatiently(Scripted):
    """The same, and tried again after an hour."""


@flow.component("t.scripted_slowly", runs_per_minute=5)
class ScriptedSlowly(Scripted):
    """Does the same, but not often."""
