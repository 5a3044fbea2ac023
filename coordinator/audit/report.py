"""The report for a terminal: findings first, then what each group did, then where the bytes are.

House rule: lists have an end, and what was left out is said; text from a log can't move the cursor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from coordinator.audit.audit import Outcome
from coordinator.audit.checks import CHECKS
from coordinator.audit.history import Story

FINDINGS_MAX = 50
GROUPS_MAX = 30
PARTITIONS_MAX = 10
NAMES_MAX = 6
BIG_ROLL_BYTES = 1024 * 1024
"""A restart of each static member writes the whole group each time: worth a line from here on."""


PIPE_WIDTH = 200
"""Columns where nobody says how many there are."""


def print_to(stream: TextIO, outcome: Outcome) -> None:
    """Print the report to a terminal, a pipe or a file."""
    console = Console(file=stream, highlight=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    print_report(outcome, console)


def print_report(outcome: Outcome, console: Console) -> None:
    """Print all of it."""
    _findings(outcome, console)
    _groups(outcome, console)
    _rebalances(outcome, console)
    _sizes(outcome, console)
    _others(outcome, console)
    records = sum(outcome.records_by_type.values())
    size = sum(outcome.sizes.values())
    # A live cluster shows no batches.
    batches = f"{outcome.batches} batches, " if outcome.batches else ""
    found = f"{len(outcome.findings)} findings" if outcome.findings else "nothing found"
    _line(
        console,
        f"{outcome.source}: {len(outcome.sizes)} partitions, {size_text(size)}, {batches}{records} records, "
        f"{len(outcome.stories)} groups: {found}",
    )


def _findings(outcome: Outcome, console: Console) -> None:
    if not outcome.findings:
        return
    counts = Counter(finding.check for finding in outcome.findings)
    ranks = list(_SEVERITIES)
    table = _table("severity", "check", "count", "meaning")
    for check in sorted(counts, key=lambda name: (ranks.index(CHECKS[name].severity.value), name)):
        severity = CHECKS[check].severity.value
        _row(table, [severity, check, counts[check], CHECKS[check].meaning], style=_SEVERITIES[severity])
    console.print(table)
    table = _table("check", "partition", "offset", "group", "generation", "detail")
    # What is left out is what weighs least.
    for finding in sorted(outcome.findings, key=lambda each: ranks.index(each.severity))[:FINDINGS_MAX]:
        _row(
            table,
            [finding.check, finding.partition, finding.offset, finding.group, finding.generation, finding.detail],
        )
    console.print(table)
    if len(outcome.findings) > FINDINGS_MAX:
        _line(console, f"and {len(outcome.findings) - FINDINGS_MAX} more: --out DIR writes all of them")
    console.print()


def _groups(outcome: Outcome, console: Console) -> None:
    if not outcome.stories:
        return
    table = _table("group", "partition", "from", "to", "generation", "members", "rebalances", "restarts", "bytes")
    for story in by_size(outcome.stories)[:GROUPS_MAX]:
        _row(
            table,
            [
                story.group,
                story.partition,
                time_text(story.first_ms),
                time_text(story.last_ms),
                "deleted" if story.deleted else story.generation,
                story.member_count,
                story.rebalances,
                story.static_restarts.total(),
                size_text(story.bytes),
            ],
        )
    console.print(table)
    if len(outcome.stories) > GROUPS_MAX:
        _line(console, f"and {len(outcome.stories) - GROUPS_MAX} more groups, smaller ones")
    _line(console, "from, to: what the log covers of a group, in UTC; compaction forgets what was before.")
    console.print()


def _rebalances(outcome: Outcome, console: Console) -> None:
    """Groups that rebalanced, why, and the instance ids that restarted."""
    busy = sorted((story for story in outcome.stories if story.rebalances), key=lambda each: -each.rebalances)
    if busy:
        table = _table("group", "rebalances", "most in an hour", "unseen", "causes, inferred")
        for story in busy[:GROUPS_MAX]:
            causes = ", ".join(f"{count} x {cause}" for cause, count in story.causes.most_common())
            _row(table, [story.group, story.rebalances, story.rebalances_per_hour, story.rebalances_unseen, causes])
        console.print(table)
        console.print()
    restarted = [story for story in outcome.stories if story.static_restarts]
    if restarted:
        table = _table("group", "static restarts by instance id")
        for story in sorted(restarted, key=lambda each: -each.static_restarts.total())[:GROUPS_MAX]:
            names = (f"{name} {count}" for name, count in story.static_restarts.most_common())
            _row(table, [story.group, _some(names)])
        console.print(table)
        console.print()


def _sizes(outcome: Outcome, console: Console) -> None:
    for story in by_size(outcome.stories)[:GROUPS_MAX]:
        roll = story.record_bytes * story.member_count
        if roll >= BIG_ROLL_BYTES:
            _line(
                console,
                f"{story.group}: each restart of a static member writes all {story.member_count} members, "
                f"{size_text(story.record_bytes)}; a roll of all of them {size_text(roll)}",
            )
    partitions = sorted(outcome.sizes, key=lambda each: -outcome.sizes[each])[:PARTITIONS_MAX]
    if outcome.stories and partitions:
        table = _table("partition", "bytes", "groups", "lost with it")
        for partition in partitions:
            names = [story.group for story in outcome.stories if story.partition == partition and not story.deleted]
            if names:
                _row(table, [partition, size_text(outcome.sizes[partition]), len(names), _some(names)])
        if table.row_count:
            console.print(table)
            console.print()


def _others(outcome: Outcome, console: Console) -> None:
    for story in outcome.stories:
        for client_id, why in sorted(story.old_clients.items()):
            _line(console, f"note: {story.group}: {client_id}: {why}")
    kinds = {kind: count for kind, count in outcome.records_by_type.items() if kind not in _LOADED}
    for kind, count in sorted(kinds.items()):
        _line(console, f"note: {count} records of {kind}, which a coordinator of the classic protocol skips")
    for note in outcome.notes:
        _line(console, f"note: {note}")


_NUMBERS = frozenset(
    {"count", "partition", "offset", "generation", "members", "rebalances", "restarts", "bytes", "groups"}
)
_ONE_LINE = frozenset({"group", "check", "severity", "from", "to"})
_SEVERITIES = {"error": "bold red", "warning": "yellow", "notice": "cyan"}
_LOADED = frozenset({"offset_commit", "group_metadata", "transaction_marker", "unreadable"})


def by_size(stories: Sequence[Story]) -> list[Story]:
    """The stories, those with the most bytes first."""
    return sorted(stories, key=lambda each: (-each.bytes, each.group))


def time_text(timestamp_ms: int) -> str:
    """A moment in UTC."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)


def size_text(size: float) -> str:
    """A number of bytes with a unit that suits it."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def printable(text: str) -> str:
    """Text from a log as a terminal may have it: what would move the cursor or end the line is escaped."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - NAMES_MAX} more" if len(listed) > NAMES_MAX else ""
    return ", ".join(listed[:NAMES_MAX]) + more


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        numbers = heading in _NUMBERS
        table.add_column(heading, justify="right" if numbers else "left", overflow="fold", no_wrap=heading in _ONE_LINE)
    return table


def _row(table: Table, cells: Sequence[object], style: str = "") -> None:
    table.add_row(*(Text("-" if cell is None else printable(str(cell))) for cell in cells), style=style)


def _line(console: Console, text: str) -> None:
    console.print(Text(printable(text)), soft_wrap=True)
