"""The report for a terminal: findings first, then the past of each group, then the bytes.

House rule: each list has a limit, and the report says how many are left out; text from a log can't move the cursor.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from coordinator.audit.audit import FINDINGS_KEPT, AuditResult
from coordinator.audit.check.checks import CHECKS, Finding
from coordinator.audit.check.history import KINDS, READ, Story
from coordinator.story.counts import number_text, returns_text, unknown_returns_text
from coordinator.story.diagnosis import Severity
from coordinator.story.records.consumer import CONSUMER_VERSIONS
from coordinator.text import names_text, printable, second_text, size_text

FINDINGS_MAX = 50
GROUPS_MAX = 30
PARTITIONS_MAX = 10
NAMES_MAX = 6
NAME_MAX = 300
BIG_ROLL_BYTES = 1024 * 1024
"""Each restart of a static member writes the whole group: from this size of a full roll on, the report says so."""
TABLE_WIDTH = 140
"""Columns of a table of groups with its names; on a narrower terminal each group is a paragraph."""
PIPE_WIDTH = 200
"""Columns if the output doesn't say how many it has."""
MOMENTS_FROM_MS = 10**11
"""A number of ms from here on is a moment (1973), below it a duration."""


def print_to(stream: TextIO, result: AuditResult) -> None:
    """Print the report to a terminal, a pipe or a file."""
    console = Console(file=stream, highlight=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    print_report(result, console)


def print_report(result: AuditResult, console: Console) -> None:
    """Print the whole report."""
    _findings(result, console)
    _groups(result, console)
    _rebalances(result, console)
    _sizes(result, console)
    _others(result, console)
    records = sum(result.records_by_type.values())
    # A live cluster shows no batches.
    batches = f"{result.batches:,} batches, " if result.batches else ""
    found = number_text(result.counts.total(), "finding") if result.findings else "nothing found"
    _line(
        console,
        f"{result.source}: {number_text(len(result.sizes), 'partition')}, {size_text(sum(result.sizes.values()))}, "
        f"{batches}{number_text(records, 'record')}, "
        f"{number_text(len(result.stories), 'group')}: {found}",
    )


def _findings(result: AuditResult, console: Console) -> None:
    """Print each check that has findings, its meaning, and its findings, the worst check first."""
    by_check: dict[str, list[Finding]] = defaultdict(list)
    for finding in result.findings:
        by_check[finding.check].append(finding)
    left, counts = FINDINGS_MAX, result.counts
    for check in sorted(by_check, key=lambda name: (_RANKS.index(CHECKS[name].severity), name)):
        severity, meaning, _ = CHECKS[check]
        of_check = by_check[check]
        heading = Text.assemble(
            (severity.value, _STYLES[severity]), " ", (check, "bold"),
            f", {number_text(counts[check], 'finding')}: {meaning}",
        )  # fmt: skip
        _paragraph(console, heading)
        for finding in of_check[:left]:
            generation = "" if finding.generation is None else f"generation {finding.generation}, "
            offset = "" if finding.offset is None else f", offset {finding.offset}"
            group = "" if finding.group is None else f"{_short(finding.group)}  "
            _line(console, f"{group}{generation}partition {finding.partition}{offset}", 2)
            _line(console, "; ".join(f"{name} {value}".strip() for name, value in detail_words(finding.detail)), 4)
        left = max(left - len(of_check), 0)
        console.print()
    if counts.total() > FINDINGS_MAX:
        written = "all of them" if not result.left_out else f"the first {FINDINGS_KEPT:,} of each check"
        _line(console, f"and {counts.total() - FINDINGS_MAX:,} more: --out DIR writes {written}")
        console.print()


def detail_words(text: str) -> list[tuple[str, str]]:
    """Name and value of each part of a finding's detail, not made printable; ("", text) if it is no object."""
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        return [("", text)]
    return [(name, _value_text(name, value)) for name, value in values.items()]


def _value_text(name: str, value: object) -> str:
    if name.endswith("_ms") and isinstance(value, int) and value >= MOMENTS_FROM_MS:
        return second_text(value)
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{count} x {what}" for what, count in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _groups(result: AuditResult, console: Console) -> None:
    if not result.stories:
        return
    shown = by_size(result.stories)[:GROUPS_MAX]
    if console.width < TABLE_WIDTH:
        for story in shown:
            _line(console, _short(story.group))
            _line(
                console,
                f"partition {story.partition}, {second_text(story.first_ms)} to {second_text(story.last_ms)}",
                4,
            )
            members = [number_text(story.member_count, "member")] if story.group_type in READ else []
            counts = (
                *members, number_text(story.rebalances, "rebalance", at_least=story.at_least),
                number_text(story.return_count, "return", at_least=story.at_least), size_text(story.bytes),
            )  # fmt: skip
            _line(console, f"{state_text(story)}, {', '.join(counts)}", 4)
    else:
        table = _table("group", "partition", "from", "to", "generation", "members", "rebalances", "returns", "bytes")
        for story in shown:
            cells = (
                _short(story.group), story.partition, second_text(story.first_ms), second_text(story.last_ms),
                state_text(story).removeprefix("generation "),
                story.member_count if story.group_type in READ else "-",
                least_text(story.rebalances, story), least_text(story.return_count, story), size_text(story.bytes),
            )  # fmt: skip
            _row(table, cells)
        console.print(table)
    if len(result.stories) > GROUPS_MAX:
        _line(console, f"and {len(result.stories) - GROUPS_MAX:,} more groups, smaller ones")
    _line(
        console,
        "The times are those of a group's first and last record in the log, in UTC; compaction removes earlier ones.",
    )
    if any(story.at_least for story in shown):
        _line(
            console,
            "At least: the log has no record of some rebalances and returns, and events are missing for a part of it.",
        )
    console.print()


def state_text(story: Story) -> str:
    """The generation of a group, or the reason that it has none."""
    if story.deleted:
        return "deleted"
    if story.group_type not in READ:
        return f"{story.group_type} protocol"
    return "no generation" if story.generation is None else f"generation {story.generation}"


def _rebalances(result: AuditResult, console: Console) -> None:
    """Print the groups that rebalanced, the causes, and the instance ids that returned."""
    busy = [story for story in result.stories if story.rebalances or story.return_count]
    busy.sort(key=lambda each: (-each.rebalances, -each.return_count, each.group))
    for story in busy[:GROUPS_MAX]:
        unseen = f", {story.rebalances_unseen:,} of them without a record" if story.rebalances_unseen else ""
        most = f" ({story.rebalances_per_hour:,} within an hour at most{unseen})" if story.rebalances else ""
        rebalances = number_text(story.rebalances, "rebalance", at_least=story.at_least)
        _line(console, f"{_short(story.group)}  {rebalances}{most}")
        for source, causes in (("inferred", story.causes), ("recorded by the server", story.causes_recorded)):
            if causes:
                counted = ", ".join(f"{count:,} x {cause}" for cause, count in causes.most_common())
                _line(console, f"causes, {source}: {counted}", 4)
        if story.rebalances_forgotten:
            _line(console, f"only in the server's events: {number_text(story.rebalances_forgotten, 'rebalance')}", 4)
        for text, names in returns_by_seat(story):
            _line(console, f"{text}, by instance id: {_some(names)}", 4)
    if len(busy) > GROUPS_MAX:
        _line(console, f"and {len(busy) - GROUPS_MAX:,} more groups with rebalances or returns")
    if busy:
        console.print()


def _sizes(result: AuditResult, console: Console) -> None:
    for story in by_size(result.stories)[:GROUPS_MAX]:
        growth = growth_text(story)
        if growth:
            _line(console, f"{_short(story.group)}: {growth}")
    partitions = sorted(result.sizes, key=lambda each: -result.sizes[each])[:PARTITIONS_MAX]
    if result.stories and partitions:
        table = _table("partition", "bytes", "groups", "lost with it")
        for partition in partitions:
            names = [story.group for story in result.stories if story.partition == partition and not story.deleted]
            if names:
                _row(table, [partition, size_text(result.sizes[partition]), len(names), _some(names)])
        if table.row_count:
            console.print(table)
            console.print()


def _others(result: AuditResult, console: Console) -> None:
    for story in result.stories:
        for client_id, why in sorted(story.old_clients.items()):
            _line(console, f"note: {_short(story.group)}: {_short(client_id)}: {why}")
    kinds = {
        kind: count
        for kind, count in result.records_by_type.items()
        if kind not in _LOADED and kind not in CONSUMER_VERSIONS
    }
    for kind, count in sorted(kinds.items()):
        _line(console, f"note: {number_text(count, 'record')} of {kind}, which Tenure skips")
    for note in result.notes:
        _line(console, f"note: {note}")


_NUMBERS = frozenset({"partition", "generation", "members", "rebalances", "returns", "bytes", "groups"})
_ONE_LINE = frozenset({"from", "to"})
_RANKS = list(Severity)
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTICE: "cyan"}
_LOADED = frozenset({"offset_commit", "group_metadata", "transaction_marker", "unreadable"})


def least_text(number: int, story: Story) -> str:
    """A number of a story in a table."""
    return f"at least {number:,}" if story.at_least else f"{number:,}"


def returns_by_seat(story: Story) -> Iterator[tuple[str, list[str]]]:
    """For each kind of return: how many, and the instance ids with their numbers, the most first."""
    for kind, field in KINDS.items():
        by_name: Counter[str] = getattr(story, field)
        if by_name:
            yield returns_text(Counter({kind: by_name.total()})), _numbered(by_name)
    if story.returns:
        yield unknown_returns_text(story.returns.total()), _numbered(story.returns)


def _numbered(by_name: Counter[str]) -> list[str]:
    return [f"{name} {count:,}" for name, count in by_name.most_common()]


def growth_text(story: Story) -> str:
    """The bytes of a roll of a big group, which grow with the square of its size; "" for a small group."""
    roll = story.record_bytes * story.member_count
    if roll < BIG_ROLL_BYTES:
        return ""
    return (
        f"each restart of a static member writes all {story.member_count:,} members, {size_text(story.record_bytes)}; "
        f"a roll of all of them {size_text(roll)}"
    )


def by_size(stories: Sequence[Story]) -> list[Story]:
    """The stories, those with the most bytes first."""
    return sorted(stories, key=lambda each: (-each.bytes, each.group))


def _some(names: Iterable[str]) -> str:
    return names_text([_short(name) for name in names], most=NAMES_MAX)


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        numbers = heading in _NUMBERS
        table.add_column(heading, justify="right" if numbers else "left", overflow="fold", no_wrap=heading in _ONE_LINE)
    return table


def _row(table: Table, cells: Sequence[object]) -> None:
    table.add_row(*(Text(printable(str(cell))) for cell in cells))


def _short(name: str) -> str:
    """A shortened name: a group id may have 32,767 bytes."""
    return name if len(name) <= NAME_MAX else f"{name[: NAME_MAX - 1]}…"


def _line(console: Console, text: str, indent: int = 0) -> None:
    """Print a paragraph. Lines break between words; only a word that is longer than a line is split."""
    _paragraph(console, Text(printable(text)), indent)


def _paragraph(console: Console, text: Text, indent: int = 0) -> None:
    for line in text.wrap(console, max(console.width - indent, 1), overflow="fold"):
        line.rstrip()
        console.print(Text(" " * indent).append(line), soft_wrap=True)
