"""Statements that each run of a node needs: the ORM would need one for each row, or much longer.

To build a query takes Django longer than PostgreSQL needs to answer it, which counts where there is
only one run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from typing import Any, Final, NamedTuple

from django.db import connections
from django.db.models import DateTimeField, JSONField

from hipq_django.database.kinds import engine_kind
from hipq_django.database.lookups import ids_as_parameter
from hipq_django.domain.serialization import encode_json
from hipq_django.engines.dialects import POSTGRESQL
from hipq_django.flow.models import Node

LEFT_OUT: Final = object()
"""Stands for data that is still in the database only, because it is large."""

LARGE = 2_000
"""Data of more bytes than these is left out, and what is compressed, for it has had more."""


class UnreadMessage(NamedTuple):
    """A message that lies on a port; its data may be `LEFT_OUT`."""

    id: int
    data: Any
    context: dict[str, Any]
    log: bool
    create_time: datetime


class Page(NamedTuple):
    """The oldest messages of a port, and the newest id when they were read."""

    messages: list[UnreadMessage]
    upto: int


def first_pages(ports: Sequence[int], size: int, using: str) -> dict[int, Page]:
    """Return the oldest `size` messages of each port that has any, by one statement.

    What a writer commits later, after an earlier message that is not committed yet either, has an
    id above `upto`. So who reads no further keeps the order of each writer.
    """
    found: dict[int, Page] = {}
    if not ports:
        return found
    sql = _FIRST_POSTGRESQL if _is_postgresql(using) else _FIRST_SQLITE
    rows = _fetched(sql, [_list(ports, using), size], using)
    for message, row in zip(_messages(rows, using), rows, strict=True):
        page = found.setdefault(row[5], Page([], row[6]))
        page.messages.append(message)
    return found


def next_page(
    port: int, after: int, upto: int, size: int, using: str, known: Sequence[int] = ()
) -> list[UnreadMessage]:
    """Return the oldest messages of a port with ids above `after`, but none above `upto`.

    Those that are `known` are left out.
    """
    params = [port, port, after, upto, _list(known, using), size]
    return _messages(_fetched(_PAGE, params, using), using)


def count_upto(port: int, last: int, using: str) -> int:
    """Return how many messages of a port, but for defaults, have ids up to `last`."""
    [(count,)] = _fetched(_COUNT_UPTO, [port, last], using)
    return int(count)


_COUNT_UPTO = """
    SELECT count(*) FROM hipq_flow_message
    WHERE port_id = %s AND NOT as_default AND id <= %s"""


def left_out(ids: Sequence[int], most: int, using: str) -> dict[int, str | None]:
    """Return the data of messages as JSON text, until that has `most` bytes; None: it is gone.

    At least one is read, and none after the one that completes them.
    """
    sql = _DATA_POSTGRESQL if _is_postgresql(using) else _DATA_SQLITE
    rows = _fetched(sql, [_list(ids, using), most], using)
    return {ids[place]: text for place, text in rows}


# Row by row: how large data is tells only the data itself, and it may be compressed.
_DATA = """
    WITH RECURSIVE asked(ids) AS (SELECT {ids}), done(place, data, bytes) AS (
        SELECT -1, '', 0
        UNION ALL
        SELECT d.place + 1, (SELECT {text} FROM hipq_flow_message WHERE id = {id}),
            d.bytes + {size}
        FROM done AS d, asked AS a WHERE d.place + 1 < {count} AND d.bytes + {size} < %s
    )
    SELECT place, data FROM done WHERE place >= 0"""
_DATA_POSTGRESQL = _DATA.format(
    ids="%s::bigint[]",
    text="data::text",
    id="a.ids[d.place + 2]",  # the first one has the number 1
    size="coalesce(octet_length(d.data), 0)",
    count="cardinality(a.ids)",
)
_DATA_SQLITE = _DATA.format(
    ids="%s",
    text="data",
    id="json_extract(a.ids, '$[' || (d.place + 1) || ']')",
    size="coalesce(length(d.data), 0)",
    count="json_array_length(a.ids)",
)


def newest_defaults(ports: Sequence[int], using: str) -> dict[int, UnreadMessage]:
    """Return of each port the newest message that is to be its default, if there is any.

    Older ones do not count any more, and are not read.
    """
    if not ports:
        return {}
    sql = _DEFAULTS_POSTGRESQL if _is_postgresql(using) else _DEFAULTS_SQLITE
    rows = _fetched(sql, [_list(ports, using)], using)
    return {row[5]: message for message, row in zip(_messages(rows, using), rows, strict=True)}


def replaced_defaults(most: int, using: str) -> list[int]:
    """Return messages that were to be defaults until newer ones of their ports came."""
    return [pk for (pk,) in _fetched(_REPLACED_DEFAULTS, [most], using)]


def _is_postgresql(using: str) -> bool:
    """Return whether the text for PostgreSQL is meant; else it is that for SQLite."""
    return connections[using].vendor == "postgresql"


_POSTGRESQL = {
    "ids": "SELECT unnest(%s::bigint[])",
    "among": "= ANY(%s::bigint[])",
    "once": "MATERIALIZED",
    "small": f"CASE WHEN pg_column_size(m.data) <= {LARGE} "
    "AND pg_column_compression(m.data) IS NULL THEN m.data END",
    "moment": POSTGRESQL.moment.format("m.create_time"),
}
"""What statements call these: a list of ids as rows, or as the end of a condition; a part that is
to be read once; the data of a message but for large ones; and when it was written."""

_SQLITE = {
    "ids": "SELECT value FROM json_each(%s)",
    "among": "IN (SELECT value FROM json_each(%s))",
    "once": "",
    "small": f"CASE WHEN length(m.data) <= {LARGE} THEN m.data END",
    "moment": "m.create_time",
}


@cache
def _written(sql: str, is_postgresql: bool) -> str:
    """Return a statement as the database writes it."""
    return sql.format(**(_POSTGRESQL if is_postgresql else _SQLITE))


def _list(ids: Iterable[int], using: str) -> str:
    return ids_as_parameter(ids, connections[using].vendor)


def row_lock(strength: str, using: str, *, skip_locked: bool) -> str:
    """Return the end of a statement that locks the rows which it reads, where there are locks."""
    lock = f"FOR {strength}{' SKIP LOCKED' if skip_locked else ''}"
    return lock if _is_postgresql(using) else ""


def _fetched(sql: str, params: Sequence[Any], using: str) -> list[tuple[Any, ...]]:
    with connections[using].cursor() as cursor:
        cursor.execute(_written(sql, _is_postgresql(using)), params)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def _done(sql: str, params: Sequence[Any], using: str) -> int:
    """Return how many rows a statement has changed."""
    with connections[using].cursor() as cursor:
        cursor.execute(_written(sql, _is_postgresql(using)), params)
        return int(cursor.rowcount)


def _messages(rows: Sequence[tuple[Any, ...]], using: str) -> list[UnreadMessage]:
    """Return messages of rows; all values are decoded at once, and each context once."""
    moment = cache(_since_epoch) if _is_postgresql(using) else _reader_of_moments(using)
    contexts = {text: json.loads(text) for text in {row[2] for row in rows}}
    texts = [row[1] for row in rows]
    if None in texts:
        values = [LEFT_OUT if text is None else json.loads(text) for text in texts]
    else:
        values = json.loads(f"[{','.join(texts)}]")
    return [
        UnreadMessage(row[0], value, contexts[row[2]], bool(row[3]), moment(row[4]))
        for row, value in zip(rows, values, strict=True)
    ]


def _reader_of_moments(using: str) -> Callable[[Any], datetime]:
    """Return a function that reads a time as the driver gives it; many messages share theirs."""
    if _is_postgresql(using):
        return _as_it_is
    convert: Any = connections[using].ops.convert_datetimefield_value  # type: ignore[attr-defined]  # SQLite's alone has it
    return cache(lambda value: convert(value, None, connections[using]))


def _as_it_is(value: Any) -> Any:
    return value


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _since_epoch(microseconds: int) -> datetime:
    """Return a time of PostgreSQL that is read as a number, which the driver reads much faster."""
    return _EPOCH + timedelta(microseconds=microseconds)


_COLUMNS = "m.id, {small}, m.context, m.log, {moment}"
_WHOLE = "m.id, m.data, m.context, m.log, {moment}"

# By a range of ports: for a single one PostgreSQL may take all messages in the order of their ids.
_FIRST_POSTGRESQL = f"""
    WITH p AS MATERIALIZED (
        SELECT id, (
            SELECT id FROM hipq_flow_message WHERE port_id BETWEEN wanted.id AND wanted.id
            ORDER BY port_id DESC, id DESC LIMIT 1
        ) AS upto
        FROM unnest(%s::bigint[]) AS wanted(id)
    )
    SELECT {_COLUMNS}, m.port_id, p.upto FROM p, LATERAL (
        SELECT * FROM hipq_flow_message
        WHERE port_id BETWEEN p.id AND p.id AND NOT as_default
        ORDER BY port_id, id LIMIT %s
    ) AS m"""  # noqa: S608 - names of columns

_FIRST_SQLITE = f"""
    SELECT {_COLUMNS}, m.port_id, (
        SELECT max(id) FROM hipq_flow_message WHERE port_id = p.value
    )
    FROM json_each(%s) AS p CROSS JOIN hipq_flow_message AS m
    WHERE m.id IN (
        SELECT id FROM hipq_flow_message
        WHERE port_id = p.value AND NOT as_default ORDER BY id LIMIT %s
    ) ORDER BY m.id"""  # noqa: S608 - names of columns

_DEFAULTS_POSTGRESQL = f"""
    SELECT {_WHOLE}, m.port_id FROM unnest(%s::bigint[]) AS wanted(id), LATERAL (
        SELECT * FROM hipq_flow_message
        WHERE port_id BETWEEN wanted.id AND wanted.id AND as_default
        ORDER BY port_id DESC, id DESC LIMIT 1
    ) AS m"""  # noqa: S608 - names of columns

_DEFAULTS_SQLITE = f"""
    SELECT {_WHOLE}, m.port_id
    FROM json_each(%s) AS p CROSS JOIN hipq_flow_message AS m
    WHERE m.id = (
        SELECT max(id) FROM hipq_flow_message WHERE port_id = p.value AND as_default
    )"""  # noqa: S608 - names of columns

_REPLACED_DEFAULTS = """
    SELECT id FROM hipq_flow_message AS m WHERE as_default AND EXISTS (
        SELECT 1 FROM hipq_flow_message
        WHERE port_id = m.port_id AND id > m.id AND as_default
    ) LIMIT %s"""

_PAGE = f"""
    SELECT {_COLUMNS} FROM hipq_flow_message AS m
    WHERE m.port_id BETWEEN %s AND %s AND NOT m.as_default AND m.id > %s AND m.id <= %s
        AND NOT m.id {{among}}
    ORDER BY m.port_id, m.id LIMIT %s"""  # noqa: S608 - names of columns


class PortPlace(NamedTuple):
    """What a message has to know of a port on which it comes to lie."""

    id: int
    node_id: int
    direction: str
    name: str
    mode: str
    type: str
    parent: int | None
    """The parent of its node."""


def lock_places(ports: Iterable[int], using: str, *, skip_locked: bool) -> dict[int, PortPlace]:
    """Lock ports and those that they are connected to, as weakly as a foreign key; return them.

    Nobody can connect, change or delete them before the transaction ends. What was connected until
    they were locked is seen by the next statement only.
    """
    lock = row_lock("KEY SHARE OF p", using, skip_locked=skip_locked)
    rows = _fetched(f"{_PLACES} {lock}", [_list(ports, using)], using)
    return {row[0]: PortPlace(*row) for row in rows}


class Ways(NamedTuple):
    """Where messages go from ports, by the ids of these."""

    targets: dict[int, list[int]]
    channels: dict[int, list[str]]


def ways_from(ports: Iterable[int], using: str) -> Ways:
    """Return connections and channels of ports, each in the order in which they were made."""
    rows = _fetched(_WAYS, [_list(ports, using)], using)
    ways = Ways({}, {})
    for port, target, channel, _ in rows:
        if target is None:
            ways.channels.setdefault(port, []).append(channel)
        else:
            ways.targets.setdefault(port, []).append(target)
    return ways


def reached(ports: Iterable[int], using: str) -> set[int]:
    """Return ports and all that they are connected to, directly or not; nothing is locked."""
    return {pk for (pk,) in _fetched(_REACHED, [_list(ports, using)], using)}


def channels_of(ports: Iterable[int], using: str) -> set[str]:
    """Return the channels on which ports publish, or those that they are connected to."""
    return {name for (name,) in _fetched(_CHANNELS, [_list(ports, using)], using)}


_WITH_REACHED = """
    WITH RECURSIVE reached(id) AS (
        {ids}
        UNION
        SELECT c.target_id FROM reached AS r JOIN hipq_flow_connection AS c ON c.source_id = r.id
    ) """
_REACHED = _WITH_REACHED + "SELECT id FROM reached"  # noqa: S608 - ours

# Asked port by port: the planner might read all out-ports first.
_CHANNELS = f"""{_WITH_REACHED}
    SELECT c.name FROM reached AS r JOIN hipq_flow_channel AS c ON c.port_id = r.id
    WHERE (SELECT direction FROM hipq_flow_nodeport WHERE id = c.port_id) = 'out'"""  # noqa: S608 - ours

_PLACES = f"""{_WITH_REACHED}
    SELECT p.id, p.node_id, p.direction, p.name, p.mode, p.type, n.parent_id
    FROM hipq_flow_nodeport AS p JOIN hipq_flow_node AS n ON n.id = p.node_id
    WHERE p.id IN (SELECT id FROM reached) ORDER BY p.id"""  # noqa: S608 - ours

_WAYS = """
    WITH wanted(id) AS {once} ({ids})
    SELECT source_id, target_id, NULL, id FROM hipq_flow_connection
    WHERE source_id IN (SELECT id FROM wanted)
    UNION ALL
    SELECT port_id, NULL, name, id FROM hipq_flow_channel
    WHERE port_id IN (SELECT id FROM wanted)
    ORDER BY 4"""


class PageOfWakes(NamedTuple):
    """The wakes of an instance with ids above `after`, up to `last`; or those of one node."""

    instance: str
    after: int
    last: int
    size: int
    """How many there were when the page was read."""
    node: int = 0


def next_page_of_wakes(instance: str, after: int, size: int, using: str) -> PageOfWakes | None:
    """Return the page that follows an id, or None if there is none."""
    [(last, count)] = _fetched(_PAGE_OF_WAKES, [instance, after, size], using)
    return PageOfWakes(instance, after, last, count) if count else None


def lock_wakes(page: PageOfWakes, using: str) -> list[tuple[int, int, datetime | None]]:
    """Lock the wakes of a page that nobody has locked; return id, node and when it is due."""
    sql, params = _WAKES, [page.instance, page.after, page.last]
    if page.node:
        sql, params = f"{sql} AND node_id = %s", [*params, page.node]
    lock = row_lock("UPDATE", using, skip_locked=True)
    moment = _reader_of_moments(using)
    rows = _fetched(f"{sql} ORDER BY id {lock}", params, using)
    return [(pk, node, due and moment(due)) for pk, node, due in rows]


def delete_wakes(ids: Iterable[int], using: str) -> None:
    """Delete wakes."""
    _done(_DELETE_WAKES, [_list(ids, using)], using)


_PAGE_OF_WAKES = """
    SELECT max(id), count(*) FROM (
        SELECT id FROM hipq_flow_wake WHERE instance = %s AND id > %s ORDER BY id LIMIT %s
    ) AS page"""
_WAKES = """
    SELECT id, node_id, due FROM hipq_flow_wake
    WHERE instance = %s AND id > %s AND id <= %s"""
_DELETE_WAKES = "DELETE FROM hipq_flow_wake WHERE id {among}"


def is_heard(using: str) -> bool:
    """Return whether somebody listens to what flows say of themselves."""
    return bool(_fetched(_IS_HEARD, [], using))


_IS_HEARD = "SELECT 1 FROM hipq_flow_channel WHERE name >= '/flow' AND name < '/flox' LIMIT 1"


def observers_among(nodes: Iterable[int], using: str) -> set[int]:
    """Return the nodes that listen to what flows say of themselves, or to everything."""
    wanted = set(nodes)
    if not wanted:
        return set()
    return {pk for (pk,) in _fetched(_OBSERVERS, [_list(wanted, using)], using)}


_OBSERVERS = """
    SELECT DISTINCT p.node_id
    FROM hipq_flow_nodeport AS p JOIN hipq_flow_channel AS c ON c.port_id = p.id
    WHERE p.direction = 'in' AND (c.name IN ('/', '/flow') OR substr(c.name, 1, 6) = '/flow/')
    AND p.node_id {among}"""


def insert_wakes(
    nodes: Sequence[int],
    due: datetime | None,
    instance: str,
    now: datetime,
    using: str,
    messages: Sequence[NewMessage],
) -> set[int]:
    """Store a wake for each node; return the queues whose workers are to be woken.

    PostgreSQL stores a few messages by the same statement, if such are given.
    """
    ops = connections[using].ops
    moments = [due and ops.adapt_datetimefield_value(due), ops.adapt_datetimefield_value(now)]
    ids = _list(nodes, using)
    if _is_postgresql(using):
        sql, said = _WAKE_POSTGRESQL, list[Any]()
        if messages:
            said = [value for row in _rows_of_new(messages, now, using) for value in row]
            sql = _MESSAGES_AND_WAKE.format(", ".join([_VALUES] * len(messages)))
        return {pk for (pk,) in _fetched(sql, [*said, instance, *moments, ids, ids], using)}
    _done(_WAKE_SQLITE, [instance, *moments, ids], using)
    return set()  # nobody can be woken


_WAKE = """
    INSERT INTO hipq_flow_wake (instance, node_id, due, create_time)
    SELECT %s, w.id, {0}, {0} FROM {1}"""
_WAKE_SQLITE = _WAKE.format("%s", "(SELECT value AS id FROM json_each(%s)) AS w")
_WAKE_POSTGRESQL = f"""
    WITH made AS ({_WAKE.format("%s::timestamptz", "unnest(%s::bigint[]) AS w(id)")})
    SELECT DISTINCT queue_id FROM hipq_flow_node WHERE id = ANY(%s::bigint[])"""  # noqa: S608 - it is ours


def go_with_wakes(messages: Sequence[NewMessage], using: str) -> bool:
    """Return whether messages are so few that `insert_wakes` may be given them."""
    return _is_postgresql(using) and 0 < len(messages) <= MANY


class NewMessage(NamedTuple):
    """A message that is not stored yet."""

    port: int
    data: Any
    context: Mapping[str, Any]
    as_default: bool
    log: bool
    text: str
    """The data as `json_with_text` has made it; empty: it has to be encoded yet."""


def insert_messages(messages: Sequence[NewMessage], now: datetime, using: str) -> None:
    """Store messages; their ids are in their order."""
    if not messages:
        return
    rows = _rows_of_new(messages, now, using)
    if len(messages) > MANY and engine_kind(using) == "postgresql":
        _copy(rows, using)
        return
    with connections[using].cursor() as cursor:
        if len(messages) == 1:  # psycopg would prepare a pipeline for it
            cursor.execute(_INSERT, next(rows))
        else:
            cursor.executemany(_INSERT, list(rows))


def _rows_of_new(
    messages: Sequence[NewMessage], now: datetime, using: str
) -> Iterator[tuple[Any, ...]]:
    """Yield the values of messages in the order of `_COLUMNS_OF_NEW`."""
    # Once: all have the same one.
    moment = str(connections[using].ops.adapt_datetimefield_value(now))
    takes_texts = _is_postgresql(using)  # see `json_with_text`
    contexts: dict[int, str] = {}
    for port, data, context, as_default, log, text in messages:
        shared = contexts.get(id(context))  # most have the same one
        if shared is None:
            shared = contexts[id(context)] = encode_json(dict(context))
        encoded = text if text and takes_texts else encode_json(data)
        yield port, encoded, shared, as_default, log, moment


MANY = 5
"""More messages than these are sent by COPY, which needs a round trip more."""


def _copy(rows: Iterator[tuple[Any, ...]], using: str) -> None:
    """Store messages while the client still writes them."""
    connection = connections[using]
    # What the driver raises in the middle of a COPY becomes Django's error too.
    with connection.wrap_database_errors, connection.cursor() as cursor, cursor.copy(_COPY) as copy:
        while part := "".join([_LINE % row for row in islice(rows, LINES_PER_WRITE)]):
            copy.write(part.replace("\\", r"\\"))


LINES_PER_WRITE = 500
"""So few that the server reads while the next ones are made."""

_COLUMNS_OF_NEW = "(port_id, data, context, as_default, log, create_time)"
_LINE = "%s\t%s\t%s\t%s\t%s\t%s\n"
_COPY = f"COPY hipq_flow_message {_COLUMNS_OF_NEW} FROM STDIN"
_VALUES = "(%s, %s, %s, %s, %s, %s)"
_INSERT = f"INSERT INTO hipq_flow_message {_COLUMNS_OF_NEW} VALUES {_VALUES}"  # noqa: S608 - names of columns
_MESSAGES_AND_WAKE = _WAKE_POSTGRESQL.replace(
    "WITH", f"WITH said AS ({_INSERT.replace(_VALUES, '{}')}),", 1
)


def delete_messages(ids: Sequence[int], using: str) -> bool:
    """Delete messages; return whether all of them were there and nobody else had locked one.

    One that is named twice was read by two, and so is not there for one of them.
    """
    if not ids:
        return True
    sql = _DELETE_UNLOCKED if _is_postgresql(using) else _DELETE
    return _done(sql, [_list(ids, using)], using) == len(ids)


_DELETE = "DELETE FROM hipq_flow_message WHERE id {among}"
_DELETE_UNLOCKED = """
    DELETE FROM hipq_flow_message WHERE id = ANY(ARRAY(
        SELECT id FROM hipq_flow_message WHERE id {among}
        FOR UPDATE SKIP LOCKED))"""


_TYPES = {
    "BigIntegerField": "bigint",
    "BooleanField": "boolean",
    "CharField": "text",
    "DateTimeField": "timestamptz",
    "JSONField": "jsonb",
}
"""The types of PostgreSQL by the internal types of the fields."""


def update_nodes(
    rows: Sequence[Mapping[str, Any]], using: str, wakes: Collection[int] = ()
) -> bool:
    """Write values of many nodes, whose rows are locked, by one statement.

    Each row has the `id` of its node, and all of them the same columns. Return what `is_heard`
    does, which PostgreSQL says by the same statement; it deletes these wakes by that, too.
    """
    if not rows:
        return False
    columns = [name for name in rows[0] if name != "id"]
    writers = {name: _writer(name, using) for name in rows[0]}
    values = json.dumps(
        [{name: write(row[name]) for name, write in writers.items()} for row in rows]
    )
    update = _update(tuple(columns), _is_postgresql(using))
    if _is_postgresql(using):
        sql, params = f"WITH changed AS ({update})", [values]
        if wakes:
            sql, params = f"{sql}, deleted AS ({_DELETE_WAKES})", [values, _list(wakes, using)]
        return bool(_fetched(f"{sql} SELECT EXISTS ({_IS_HEARD})", params, using)[0][0])
    _done(update, [values], using)
    if wakes:
        delete_wakes(wakes, using)
    return is_heard(using)


def _writer(name: str, using: str) -> Callable[[Any], Any]:
    """Return what writes the values of a column into the JSON text.

    JSON is written as text, moments as the database has them; many rows share both.
    """
    field = Node._meta.get_field(name)
    if isinstance(field, JSONField):
        return _json_text
    if isinstance(field, DateTimeField):
        adapt = connections[using].ops.adapt_datetimefield_value
        return cache(lambda moment: moment and str(adapt(moment)))
    return _as_it_is


def _json_text(value: Any) -> str:
    return "{}" if value == {} else encode_json(value)


@cache
def _update(columns: tuple[str, ...], is_postgresql: bool) -> str:
    """Return the statement that writes these columns of the rows of a JSON text."""
    rows, field = "json_each(%s) AS v", "json_extract(v.value, '$.{0}')"
    if is_postgresql:
        rows, field = "jsonb_array_elements(%s::jsonb) AS v(value)", "(v.value ->> '{0}')::{1}"
    kinds = {name: Node._meta.get_field(name).get_internal_type() for name in columns}
    changes = [f"{name} = {field.format(name, _TYPES[kind])}" for name, kind in kinds.items()]
    return (
        f"UPDATE hipq_flow_node AS n SET {', '.join(changes)} "  # noqa: S608 - names of columns
        f"FROM {rows} WHERE n.id = {field.format('id', 'bigint')}"
    )
