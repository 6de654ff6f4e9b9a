"""What the database does for a statement: its plan, taken in the moment before it runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Any

from django.db import connection, transaction

from hipq_django.engines.statements import server_functions

BIG_TABLES = ("hipq_job", "hipq_answer", "hipq_schedule", "hipq_schedulerun")
ABOUT_BIG_TABLES = re.compile(rf"\b({'|'.join(BIG_TABLES)})\b")
SLACK_ROWS = 50
"""Rows that may be read in vain: an index of so few is read whole, whatever is asked for."""

SORTED_ROWS = 1_000
"""A sort of so few costs less than the statement itself."""

SLACK_PAGES = 100
PAGES_PER_ROW = 4
SQL_ALIAS = re.compile(rf"\b({'|'.join(BIG_TABLES)})\b\"? (?:AS )?\"?(\w+)")
KEPT = {kept.call: kept for kept in server_functions()}
BY_RANK = re.compile(r"ORDER BY [^)]*\brank\b")
SQLITE_SCAN = re.compile(r"SCAN (\w+)(?! USING)\b")


@dataclass(slots=True)
class Plan:
    """A statement and how the database went about it; `nodes` on PostgreSQL, `text` on SQLite."""

    sql: str
    text: str
    nodes: list[dict[str, Any]] = field(default_factory=list)

    def faults(self, pages: int = SLACK_PAGES) -> list[str]:
        """Return what would grow with rows that the statement has nothing to do with."""
        found = list(self._postgresql_faults(pages)) if self.nodes else list(self._sqlite_faults())
        return [f"{fault}\n{self.text}\n{self.sql}" for fault in found]

    def rows_read(self) -> int:
        """Return how many rows of the big tables were read, those that were dropped included."""
        return sum(_returned(node) + _dropped(node) for node in self._big_scans())

    def pages(self) -> int:
        """Return how many pages were touched."""
        return _pages(self.nodes[0])

    def _big_scans(self) -> list[dict[str, Any]]:
        return [
            node
            for node in self.nodes
            # A scan of an index into a bitmap does not say of which table it is.
            if node.get("Relation Name", BIG_TABLES[0]) in BIG_TABLES
            and ("Relation Name" in node or "Index Name" in node)
            and node["Node Type"] != "ModifyTable"
            and node["Actual Loops"]  # else it is there for a case that did not come up
        ]

    def _postgresql_faults(self, slack: int) -> Iterator[str]:
        for node in self._big_scans():
            kind, name = node["Node Type"], node.get("Index Name", node.get("Relation Name"))
            returned, dropped = _returned(node), _dropped(node)
            if kind == "Seq Scan":
                yield f"{name} is read from end to end"
            if dropped > returned + SLACK_ROWS:
                yield f"{kind} on {name} read {dropped} rows in vain for {returned}"
            pages = _pages(node) - self._pages_of_initial_plans(node)
            if pages > slack + PAGES_PER_ROW * (returned + dropped):
                yield f"{kind} on {name} touched {pages} pages for {returned} rows"
        yield from self._sorts()

    def _pages_of_initial_plans(self, node: dict[str, Any]) -> int:
        """Return the pages of what the conditions of a scan asked for first."""
        scans = _nodes(node)  # that of a bitmap's table has the one of the index below it
        conditions = " ".join(f"{n.get('Index Cond')} {n.get('Filter')}" for n in scans)
        return sum(
            _pages(other)
            for other in self.nodes
            for name in re.findall(r"^\w+ \d+|\$\d+", other.get("Subplan Name", ""))
            # "(InitPlan 2).col1", or before PostgreSQL 17 the parameters that it returns.
            if re.search(rf"{re.escape(name)}\b", conditions)
        )

    def _sorts(self) -> Iterator[str]:
        for node in self.nodes:
            if node["Node Type"] in ("Sort", "Incremental Sort"):
                rows = sum(_returned(child) for child in node["Plans"])
                if rows > 2 * _returned(node) + SORTED_ROWS:
                    yield f"{rows} rows are sorted for {_returned(node)}"

    def _sqlite_faults(self) -> Iterator[str]:
        big = {*BIG_TABLES} | {alias for _, alias in SQL_ALIAS.findall(self.sql)}
        for name in SQLITE_SCAN.findall(self.text):
            if name in big:
                yield f"{name} is read from end to end"
        if BY_RANK.search(self.sql) and any(big & names for names in self._sorted_on_sqlite()):
            yield "the backlog is sorted"

    def _sorted_on_sqlite(self) -> Iterator[set[str]]:
        """Yield what each sort reads the rows of: what is beside it, or in what is beside it.

        A subquery that is a value of a row, or says which rows count, is none of them.
        """
        lines = self.text.split("\n")
        for end, line in enumerate(lines):
            if not line.endswith("TEMP B-TREE FOR ORDER BY"):
                continue
            depth, names, of_value = _depth(line), set(), inf
            for before in lines[_beginning(lines, end, depth) : end]:
                of_value = of_value if _depth(before) > of_value else inf
                if before.endswith("SUBQUERY") or re.search(r"SUBQUERY \d+$", before):
                    of_value = min(of_value, _depth(before))
                elif of_value == inf:
                    names |= set(re.findall(r"(?:SCAN|SEARCH) (\w+)", before))
            yield names


def assert_good(plans: Sequence[Plan], pages: int = SLACK_PAGES) -> None:
    """Raise `AssertionError` unless there are plans and none of them has a fault."""
    found = [fault for plan in plans for fault in plan.faults(pages)]
    if found or not plans:
        raise AssertionError("\n\n".join(found) or "no statement was watched")


def _pages(node: dict[str, Any]) -> int:
    return int(node["Shared Hit Blocks"] + node["Shared Read Blocks"])


def _returned(node: dict[str, Any]) -> int:
    rows: float = node["Actual Rows"] * node["Actual Loops"]
    return round(rows)


def _dropped(node: dict[str, Any]) -> int:
    each = sum(value for name, value in node.items() if name.startswith("Rows Removed by"))
    rows: float = each * node["Actual Loops"]
    return round(rows)


@contextmanager
def watched_plans() -> Iterator[list[Plan]]:
    """Collect the plan of each statement about a big table."""
    plans: list[Plan] = []

    def watch(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        for one, its_params in _each(sql, params):
            text = KEPT[one].text if one in KEPT else one
            if ABOUT_BIG_TABLES.search(text) and not one.startswith(("EXPLAIN", "PREPARE")):
                plans.append(_explained(one, its_params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(watch):
        yield plans


def _each(sql: str, params: Sequence[Any]) -> Iterator[tuple[str, Sequence[Any]]]:
    """Take calls of functions that are sent together apart."""
    calls = sql.split("; ")
    if not all(call in KEPT for call in calls):
        calls = [sql]
    for call in calls:
        number = call.count("%s")
        yield call, params[:number] if len(calls) > 1 else params
        params = params[number:] if len(calls) > 1 else params


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _beginning(lines: Sequence[str], end: int, depth: int) -> int:
    """Return where the steps begin that have the same parent as the one at `end`."""
    above = [at for at in range(end) if _depth(lines[at]) < depth]
    return above[-1] + 1 if above else 0


def _explained(sql: str, params: Sequence[Any]) -> Plan:
    if connection.vendor == "sqlite":
        rows = _fetched(f"EXPLAIN QUERY PLAN {sql}", params)
        depths = {0: -1}
        for step, parent, _, _ in rows:
            depths[step] = depths[parent] + 1
        return Plan(sql, "\n".join("  " * depths[row[0]] + row[-1] for row in rows))
    with transaction.atomic():
        if sql in KEPT:
            # One more is how long the function lets its caller be silent.
            sql, params = _prepared(sql), params[: len(KEPT[sql].types)]
        [(found,)] = _fetched(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {sql}", params)
        transaction.set_rollback(True)  # what ANALYZE wrote is written again by the statement
    [top] = json.loads(found) if isinstance(found, str) else found
    nodes = list(_nodes(top["Plan"]))
    return Plan(sql, "\n".join(_line(node) for node in nodes), nodes)


def _prepared(call: str) -> str:
    """Return what executes a function's statement by the plan that is made there."""
    kept = KEPT[call]
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")
        cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        cursor.execute(f"PREPARE watched ({', '.join(kept.types)}) AS {kept.numbered}")
    return f"EXECUTE watched({', '.join(['%s'] * len(kept.types))})"


def _line(node: dict[str, Any]) -> str:
    where = node.get("Index Name", node.get("Relation Name", ""))
    conditions = [f"{name}: {node[name]}" for name in ("Index Cond", "Filter") if name in node]
    return " ".join([node["Node Type"], where, *conditions])


def _fetched(sql: str, params: Sequence[Any]) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from _nodes(child)
