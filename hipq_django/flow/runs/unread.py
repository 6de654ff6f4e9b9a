"""The messages that lie on a port, as a run reads them."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any

from django.db.models import QuerySet

from hipq_django.database.lookups import ids_in
from hipq_django.flow.models import Message, NodePort
from hipq_django.flow.statements import (
    LEFT_OUT,
    Page,
    UnreadMessage,
    count_upto,
    first_pages,
    left_out,
    next_page,
)

PAGE_SIZE = 800
"""How many messages of a port are read at once: with the first page as many as `each` takes."""

NO_PAGE = Page([], 0)

LARGE_AT_ONCE = 1_000_000
"""How many bytes of large data are read at once, and the rest of the last one."""


class Volume:
    """How many bytes of large data and of output a run holds, or has held."""

    bytes = 0


class UnreadMessages:
    """The messages of one port that a run may read, oldest first, page by page.

    It reads no further than to what lay there when it looked first, so that it ends. A
    message with a lower id may be committed later than one with a higher id: what has come between
    the messages that were read already is read before those that follow them. Large data is read
    only when its turn has come.
    """

    def __init__(
        self, row: NodePort, volume: Volume, first: Page | None = None, page_size: int = PAGE_SIZE
    ) -> None:
        """`first` are the first messages, as many as `page_size` if there are so many."""
        self.row = row
        self._volume = volume
        if first is None:
            first = first_pages([row.pk], page_size, row.using).get(row.pk, NO_PAGE)
        self._upto = first.upto
        self._page_read = deque(first.messages)
        self._is_last = len(first.messages) < page_size
        self._taken: list[int] = []

    @property
    def _rows(self) -> QuerySet[Message]:
        rows = Message.objects.using(self.row.using)
        return rows.filter(port=self.row.pk, as_default=False)

    def _fill(self, count: int) -> None:
        """Read further pages until so many messages lie here, if there are so many."""
        while len(self._page_read) < count and not self._is_last:
            page = self._next_page([*self._taken, *(message.id for message in self._page_read)])
            self._is_last = len(page) < PAGE_SIZE
            self._page_read.extend(page)

    def _next_page(self, known: Sequence[int]) -> Sequence[UnreadMessage]:
        """Return the next messages; first those with lower ids that were committed meanwhile.

        Their writer may have written a later one, too, which is not to overtake them.
        """
        last = max(known, default=0)  # somebody may have taken all that were known
        page = next_page(self.row.pk, last, self._upto, PAGE_SIZE, self.row.using)
        if count_upto(self.row.pk, last, self.row.using) == len(known):
            return page
        return next_page(self.row.pk, 0, self._upto, PAGE_SIZE, self.row.using, known)

    def _make_ready(self, count: int = 1) -> None:
        """Read what is missing of the oldest messages."""
        self._fill(count)
        while any(message.data is LEFT_OUT for message in islice(self._page_read, count)):
            self._read_left_out()
            self._fill(count)

    def _read_left_out(self) -> None:
        """Read the large data that comes next; those that are gone meanwhile are dropped."""
        left = [message.id for message in self._page_read if message.data is LEFT_OUT]
        texts = left_out(left, LARGE_AT_ONCE, self.row.using)
        self._volume.bytes += sum(len(text) for text in texts.values() if text is not None)
        self._page_read = deque(
            message._replace(data=json.loads(text)) if (text := texts.get(message.id)) else message
            for message in self._page_read
            if texts.get(message.id, "") is not None
        )

    def pass_over(self, taken: Sequence[int]) -> None:
        """Leave out what lies there still, but was read before the run waited for its answer."""
        own = {message.id for message in self._page_read}.intersection(taken)
        if taken and not self._is_last:
            own = set(self._rows.filter(ids_in("pk", taken)).values_list("pk", flat=True))
        self._page_read = deque(m for m in self._page_read if m.id not in own)
        self._taken += own

    def take(self) -> UnreadMessage | None:
        """Return the oldest message, which is read now, or None."""
        if not self:
            return None
        message: UnreadMessage = self._page_read.popleft()
        self._taken.append(message.id)
        return message

    def __bool__(self) -> bool:
        there = self._page_read
        if not there or there[0].data is LEFT_OUT:  # as seldom
            self._make_ready()
        return bool(self._page_read)

    def peek(self, count: int) -> list[Any]:
        """Return the oldest values without reading them."""
        self._make_ready(count)
        return [message.data for message in islice(self._page_read, count)]

    def __len__(self) -> int:
        there = len(self._page_read)
        if self._is_last:
            return there
        return self._rows.count() - len(self._taken)
