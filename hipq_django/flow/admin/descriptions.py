"""What the components that come with flows do, in the reader's language."""

from __future__ import annotations

from django.utils.translation import gettext, gettext_noop

SHIPPED = frozenset(
    {
        gettext_noop(
            "Cut a list into lists of one size; the last one is filled up unless `fill` is false."
        ),
        gettext_noop("Hand on a list once each of its elements has come on `each`, in any order."),
        gettext_noop("Hand on one value for each trigger."),
        gettext_noop("Hand on values some seconds after they came."),
        gettext_noop(
            "Hand on what a jq program makes of each value: nothing, one value or several."
        ),
        gettext_noop("Hand on what comes, defaults included."),
        gettext_noop("Join texts into one."),
        gettext_noop("Join the lists of all in-ports into one."),
        gettext_noop(
            "Make the last value that came the default of the connected ports: a variable."
        ),
        gettext_noop("Make a list of one value from each in-port."),
        gettext_noop(
            "Make all choices of n elements of a list: in each order if `ordered`, or with repeats."
        ),
        gettext_noop("Make all choices of one element from each list in a list."),
        gettext_noop("Make an object of one value from each in-port, by the names of the ports."),
        gettext_noop(
            "Make each message a job of a type, several at a time; hand on the ends as they come."
        ),
        gettext_noop(
            "Make lists of the first elements, the second ones and so on of the lists in a list."
        ),
        gettext_noop(
            "Merge the objects of all in-ports; for equal keys the later in-port by name wins."
        ),
        gettext_noop("Nodes and connections that were given as data."),
        gettext_noop("Split a text into several."),
        gettext_noop("Stand for a node that is not there yet: messages lie on its ports."),
        gettext_noop("Flatten the lists inside a list: all of them, or down to a level."),
        gettext_noop("Wait for a person: a page reads its in-ports and writes to its out-ports."),
        gettext_noop("Write a value several times."),
        gettext_noop("Write each element of a list by itself."),
        gettext_noop(
            "Write the elements of a list to `each`; make a list of what comes back on `each`."
        ),
        gettext_noop(
            "Write the values of an object to the out-ports that are named like its keys."
        ),
    }
)
"""The first lines of their docstrings, for the catalogs: these take texts, not code."""


def description(component: type) -> str:
    """Return what a component's code says that it does, in the words of a catalog that has it."""
    return gettext((component.__doc__ or "").strip().partition("\n")[0])
