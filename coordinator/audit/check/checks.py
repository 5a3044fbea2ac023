"""Every check: its name, how bad what it finds is, and what that means in a line.

What it means at length, and what to do, is in docs/audit.md, a section for each name.

House rule: a name is an interface, as scripts look for it; a new check is a line here, a section there and a test.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from coordinator.audit.read.parse import Row


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    """Data is lost, or a group is in a state that a coordinator must not write."""
    WARNING = "warning"
    """Somebody should look: work is done twice, left undone or for nothing."""
    NOTICE = "notice"
    """Odd, and it may be meant."""


class Check(NamedTuple):
    """A check; meaning: what a finding of it says."""

    severity: Severity
    meaning: str


CHECKS: dict[str, Check] = {
    "bad_checksum": Check(Severity.ERROR, "a batch isn't what was written: its CRC is wrong"),
    "torn_tail": Check(Severity.WARNING, "a segment ends in the middle of a batch"),
    "old_format": Check(Severity.WARNING, "messages of format 0 or 1, which aren't read"),
    "undecodable": Check(Severity.ERROR, "bytes that are no batch, or a record that no coordinator can load"),
    "undecodable_metadata": Check(Severity.WARNING, "a consumer's subscription or assignment can't be read"),
    "offset_order": Check(Severity.ERROR, "an offset is used twice, or offsets fall"),
    "offset_gap": Check(Severity.ERROR, "offsets are missing where nothing was ever compacted"),
    "wrong_partition": Check(Severity.ERROR, "a group's records are where no coordinator looks for them"),
    "epoch_order": Check(Severity.ERROR, "a batch of an earlier owner lies behind one of a later owner"),
    "compaction_lost_key": Check(Severity.ERROR, "a compaction dropped what was still valid"),
    "duplicate_instance": Check(Severity.ERROR, "an instance id is there twice in one generation"),
    "leader_not_member": Check(Severity.ERROR, "the leader is none of the members"),
    "generation_falls": Check(Severity.ERROR, "a generation is lower than an earlier one of the same group"),
    "membership_changed": Check(Severity.ERROR, "members changed without a new generation"),
    "assignment_changed": Check(Severity.ERROR, "an assignment changed without a new generation"),
    "partition_assigned_twice": Check(Severity.ERROR, "a topic partition is assigned twice in one generation"),
    "subscribed_unassigned": Check(Severity.WARNING, "a topic is subscribed to and assigned to nobody"),
    "deleted_returns": Check(Severity.ERROR, "a deleted group is back with its old state"),
    "session_above_cap": Check(Severity.WARNING, "a session timeout is above what a coordinator allows"),
    "rebalance_storm": Check(Severity.WARNING, "a group rebalanced too often within an hour"),
    "instance_contested": Check(Severity.WARNING, "an instance id was taken over again and again in a short time"),
    "instance_never_returns": Check(Severity.WARNING, "instance ids go for good and new ones come in their place"),
    "session_shorter_than_gap": Check(Severity.WARNING, "a static member lost its seat in a restart"),
    "orphan_offsets": Check(Severity.NOTICE, "committed offsets that nobody uses any more"),
    "commit_back": Check(Severity.NOTICE, "a committed offset went back"),
}


class Finding(NamedTuple):
    """What a check found. offset: of the record in the metadata log. detail: what a person needs to know, as JSON."""

    check: str
    severity: str
    partition: int
    offset: int | None
    group: str | None
    generation: int | None
    detail: str


def finding(
    check: str,
    partition: int,
    offset: int | None,
    group: str | None = None,
    generation: int | None = None,
    /,
    **detail: Any,
) -> Finding:
    """A finding of that check."""
    text = json.dumps(detail, ensure_ascii=False, sort_keys=True)
    return Finding(check, CHECKS[check].severity.value, partition, offset, group, generation, text)


class Findings:
    """What is found about one group on one partition; each check's name and detail are those of `finding`."""

    def __init__(self, partition: int, group: str) -> None:
        self.found: list[Finding] = []
        self._partition = partition
        self._group = group
        self._going_on: dict[str, Collection[Hashable]] = {}

    def add(self, check: str, offset: int | None, generation: int | None = None, /, **detail: Any) -> None:
        """Add a finding."""
        self.found.append(finding(check, self._partition, offset, self._group, generation, **detail))

    def add_new(self, check: str, going_on: Mapping[Hashable, Mapping[str, Any]], offset: int, generation: int) -> None:
        """Add what wasn't there when this check looked last: what goes on from record to record is found once.

        going_on: all that there is now, with its detail.
        """
        before = self._going_on.get(check, ())
        for what, detail in going_on.items():
            if what not in before:
                self.add(check, offset, generation, **detail)
        self._going_on[check] = set(going_on)


_CHECK_OF_KIND = {
    "bad_checksum": "bad_checksum",
    "torn_tail": "torn_tail",
    "old_format": "old_format",
    "no_batch": "undecodable",
    "unreadable_batch": "undecodable",
    "unreadable": "undecodable",
}


def finding_of(row: Row) -> Finding | None:
    """What a row of `other` is a finding of; None for records of other kinds, which are counted and no more."""
    partition, segment, position, offset, _ts, kind, _version, group, size, reason = row
    check = _CHECK_OF_KIND.get(kind)
    if check is None:
        return None
    return finding(check, partition, offset, group, segment=segment, position=position, size=size, reason=reason)
