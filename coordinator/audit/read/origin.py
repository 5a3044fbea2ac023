"""Finds out whether Tenure or a broker wrote a log.

Tenure has all partitions, and a lock file for each that stays. A broker has no such files, may have only some of the
partitions, and may have copied them from another broker.

House rule: a fact that isn't known is a note, and no finding.
"""

from __future__ import annotations

import re
from pathlib import Path

from coordinator.audit.read.logs import Plan
from coordinator.log.segments.segment import OFFSETS_TOPIC
from coordinator.text import names_text

NO_COUNT = "not checked: whether groups are on the right partition; --partitions sets how many there are"

_LOCK_NAME = re.compile(r"\.lock-\d+")


def is_tenures(path: Path) -> bool:
    """Whether the log at `path` (or the log of one partition) is in a data folder of Tenure. Raises OSError."""
    folder = path.absolute()
    if folder.name.startswith(f"{OFFSETS_TOPIC}-"):
        folder = folder.parent
    return any(_LOCK_NAME.fullmatch(each.name) for each in folder.iterdir())


def compared(before: Plan, after: Plan) -> tuple[set[int], list[str]]:
    """The partitions that both logs have, and notes about the others."""
    both = before.sizes.keys() & after.sizes.keys()
    alone = sorted(before.sizes.keys() ^ after.sizes.keys())
    if not alone:
        return both, []
    named = names_text(list(map(str, alone)))
    return both, [f"only one of the two logs has partition {named}: lost keys can't be found there"]
