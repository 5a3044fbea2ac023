"""The output of `tenure log verify`: a line for each finding, then a summary; or one JSON document.

House rule: the list of findings has a limit, and the output always has their full number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from coordinator.cli.exit_codes import warn
from coordinator.cli.log.verify import BrokenRule, Summary
from coordinator.cli.output import Output, print_json
from coordinator.text import printable, several

FINDINGS_MAX = 1_000
"""The most findings in a list. A person reads only the first ones; a wrong number of partitions makes one per record.
"""

NOT_SHOWN = frozenset({"at_bound", "epoch_max"})
"""Fields of `Summary` that JSON lacks: notes say what is at a bound, and epochs are for a move."""

PROGRESS_S = 5.0
"""Seconds between two progress lines of a long check."""


class ProgressLines:
    """Prints the progress through `total` bytes on standard error, one line every PROGRESS_S.

    clock: seconds that never go back. done: the word for what was done with the bytes.
    """

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic, *, done: str = "checked") -> None:
        self._word = done
        self._total = max(total, 1)
        self._clock = clock
        self._done = 0
        self._next = clock() + PROGRESS_S

    def __call__(self, size: int) -> None:
        """Note that `size` more bytes are done."""
        self._done += size
        now = self._clock()
        if now >= self._next:
            self._next = now + PROGRESS_S
            share = min(100, 100 * self._done // self._total)
            warn(f"{self._word} {self._done / 1e6:.0f} of {self._total / 1e6:.0f} MB, {share} %")


def print_report(findings: Iterable[BrokenRule], summary: Summary, partition_count: int | None, output: Output) -> int:
    """Print each finding as it comes, then the summary; return the number of findings."""
    count = 0
    listed = []
    for finding in findings:
        count += 1
        if count > FINDINGS_MAX:
            continue
        if output is Output.JSON:
            listed.append(finding)
        else:
            print(finding_text(finding))
    if output is Output.JSON:
        print_json(
            {
                "findings": [each._asdict() | {"file": str(each.file)} for each in listed],
                "findings_count": count,
                "partition_count": partition_count,
                **{name: value for name, value in vars(summary).items() if name not in NOT_SHOWN},
                "skipped": dict(sorted(summary.skipped.items())),
            }
        )
    else:
        _print_summary(count, summary, partition_count)
    return count


def finding_text(finding: BrokenRule) -> str:
    """A finding as a line."""
    offset = "" if finding.offset is None else f", offset {finding.offset}"
    return printable(f"{finding.file} at byte {finding.position}{offset}: {finding.rule.value}: {finding.reason}")


def _print_summary(count: int, summary: Summary, partition_count: int | None) -> None:
    if count > FINDINGS_MAX:
        print(f"and {count - FINDINGS_MAX} more")
    for note in summary.notes:
        print(printable(f"note: {note}"))
    for kind, number in sorted(summary.skipped.items()):
        print(f"note: {several(number, 'record')} of {kind}, which Tenure skips")
    if summary.open_transactions:
        print(f"note: open at the end: {several(summary.open_transactions, 'transaction')}")
    if partition_count is None:
        print("note: the partition of each group was not checked: give the number of partitions with --partitions")
    partitions = several(summary.partitions, "partition")
    if partition_count is not None:
        partitions = f"{summary.partitions} of {several(partition_count, 'partition')}"
    ids = f", {several(summary.transactional_ids, 'transactional id')}" if summary.transactional_ids else ""
    outcome = "not all could be read" if summary.unreadable else "clean"
    print(
        f"{partitions}, {several(summary.segments, 'segment')}, {several(summary.batches, 'batch')}, "
        f"{several(summary.records, 'record')}, {several(summary.groups, 'group')}{ids}: "
        f"{several(count, 'finding') if count else outcome}"
    )
