"""What of a timeline (timeline.py) is one thing to a person: each entry, but for restarts that repeat each other.

Programs that take one seat in turn make thousands of restarts. Between them, and without a longer pause, there may be
restarts of other seats and nothing else; then those of a seat are a fold, which stands where the first of them stands.

House rule: folding leaves nothing out; a fold is the list of all its entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coordinator.timeline.entries import Entry

FOLDED_MIN = 4
"""So many restarts of one instance id in a row are a fold."""

PAUSE_MS = 10 * 60_000
"""Restarts that are further apart are two matters: a roll a day makes none, and of a fold one need not read far to find
where it begins."""


def folded(entries: Iterable[Entry]) -> list[list[Entry]]:
    """All entries: those that stand alone in a list of their own, and folds."""
    folds: list[list[Entry]] = []
    for run in _runs(entries):
        if not _is_restart(run[0]):
            folds.append(run)
            continue
        restarts: dict[str, list[Entry]] = {}
        for entry in run:
            restarts.setdefault(entry["group_instance_id"], []).append(entry)
        for entry in run:
            same = restarts[entry["group_instance_id"]]
            if len(same) < FOLDED_MIN:
                folds.append([entry])
            elif entry is same[0]:
                folds.append(same)
    return folds


def newest(entries: Sequence[Entry], last: int | None) -> list[Entry]:
    """The entries of so many of the newest folds, in the order that they had; all of them if last is None."""
    if last is None:
        return list(entries)
    chosen = {id(entry) for fold in folded(entries)[-last:] for entry in fold}
    return [entry for entry in entries if id(entry) in chosen]


def whole(entries: Sequence[Entry], since_ms: int) -> list[list[Entry]]:
    """The newest folds that stay as they are, whatever happened at since_ms (Unix time in ms) and before."""
    first = len(entries)
    while first and entries[first - 1]["at_ms"] > since_ms:
        first -= 1
    runs = list(_runs(entries[first:]))
    if runs and _is_restart(runs[0][0]) and runs[0][0]["at_ms"] - since_ms <= PAUSE_MS:
        del runs[0]
    return folded(entry for run in runs for entry in run)


def _runs(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Restarts that follow each other; every other entry by itself."""
    run: list[Entry] = []
    for entry in entries:
        if run and not (_is_restart(run[-1]) and _is_restart(entry) and entry["at_ms"] - run[-1]["at_ms"] <= PAUSE_MS):
            yield run
            run = []
        run.append(entry)
    if run:
        yield run


def _is_restart(entry: Entry) -> bool:
    kind: str = entry["type"]
    return kind == "static_restart"
