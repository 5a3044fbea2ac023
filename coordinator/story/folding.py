"""Folds: restarts that repeat each other, as one thing. Every other entry stands by itself.

Programs that take one seat from each other make thousands of restarts. Restarts of one seat fold if only restarts of
other seats lie between them, and no longer pause. A fold stands where its first restart stands.

House rule: folding leaves nothing out; a fold is the list of all its entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from coordinator.story.entries import Entry, Return, is_restart

FOLDED_MIN = 4
"""The least restarts of one instance id in a row that make a fold."""

PAUSE_MS = 10 * 60_000
"""A longer pause ends a fold. So a daily roll makes none, and a reader soon finds where a fold begins."""


def folded(entries: Iterable[Entry]) -> list[list[Entry]]:
    """All entries: folds, and lists of one entry each."""
    folds: list[list[Entry]] = []
    for run in _runs(entries):
        restarts: dict[str, list[Entry]] = {}
        for entry in run:
            restarts.setdefault(_seat(entry), []).append(entry)
        for entry in run:
            same = restarts[_seat(entry)]
            if len(same) < FOLDED_MIN:
                folds.append([entry])
            elif entry is same[0]:
                folds.append(same)
    return folds


def newest(entries: Sequence[Entry], last: int | None) -> list[Entry]:
    """The entries of the newest folds, in their order. last: how many folds; None for all."""
    if last is None:
        return list(entries)
    chosen = {id(entry) for fold in folded(entries)[-last:] for entry in fold}
    return [entry for entry in entries if id(entry) in chosen]


def whole(entries: Sequence[Entry], since_ms: int) -> list[list[Entry]]:
    """The newest folds that no event at or before `since_ms` (Unix time in ms) can change."""
    first = len(entries)
    while first and entries[first - 1].at_ms > since_ms:
        first -= 1
    runs = list(_runs(entries[first:]))
    if runs and is_restart(runs[0][0]) and runs[0][0].at_ms - since_ms <= PAUSE_MS:
        del runs[0]
    return folded(entry for run in runs for entry in run)


def _runs(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Restarts that follow each other, as one list; every other entry in a list of its own."""
    run: list[Entry] = []
    for entry in entries:
        if run and not (is_restart(run[-1]) and is_restart(entry) and entry.at_ms - run[-1].at_ms <= PAUSE_MS):
            yield run
            run = []
        run.append(entry)
    if run:
        yield run


def _seat(entry: Entry) -> str:
    return entry.event.group_instance_id if isinstance(entry, Return) else ""
