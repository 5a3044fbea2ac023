"""Every check: its name, its severity, its meaning in a line, and advice.

The report prints the line, the page the advice, and `make format` writes docs/ask-why/audit-checks.md from here.

House rule: a name is an interface, as scripts look for it; a new check is an entry here and a test.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Mapping
from typing import Any, NamedTuple

from coordinator.audit.read.parse import Row
from coordinator.story.diagnosis import (
    CONFLICT_ADVICE,
    CONFLICT_SEVERITY,
    LOOP_ADVICE,
    LOOP_MIN,
    LOOP_MS,
    LOOP_SEVERITY,
    Severity,
)

NAMES_MAX = 100
"""Members, instance ids or topic partitions that a finding names."""


class Check(NamedTuple):
    """A check. meaning: of its findings, in one line. advice: the meaning in detail, likely causes, and the remedy."""

    severity: Severity
    meaning: str
    advice: str


CHECKS: dict[str, Check] = {
    "bad_checksum": Check(
        Severity.ERROR,
        "a batch isn't what was written: its CRC is wrong",
        "The CRC-32C of a batch is wrong: its bytes changed after they were written. The audit ignores the whole "
        "batch, so commits or a generation may be missing. Restore the file from a replica or a backup, and look for "
        "errors of the disk.",
    ),
    "torn_tail": Check(
        Severity.WARNING,
        "a segment ends in the middle of a batch",
        "A segment ends in the middle of a batch. If it is the newest segment, a crash interrupted a write, and the "
        "server cuts the rest off at its next start. In a copy of a running broker's folder the write may have been "
        "under way. If it is an older segment, the file is damaged: restore it, as for `bad_checksum`.",
    ),
    "old_format": Check(
        Severity.WARNING,
        "messages of format 0 or 1, which aren't read",
        "The log has messages of format 0 or 1. Kafka wrote them before version 0.11, and later with an old "
        "`log.message.format.version`. They are not damaged, but neither the audit nor Tenure reads them, so the "
        "audit may miss groups and commits. The next rebalance of a group and its next commits write its records "
        "anew, in format 2.",
    ),
    "undecodable": Check(
        Severity.ERROR,
        "bytes that are no batch, or a record that no coordinator can load",
        "Bytes are no batch, a batch doesn't hold the records that its header announces, or no coordinator can load a "
        "record. A batch of more than 250,000 records and a group's record of more than 250,000 members or 1,000,000 "
        "assigned topic partitions count as this too: no coordinator writes them. A coordinator refuses the "
        "partition, or skips the record. The detail has segment and position; `tenure log dump` shows the bytes and "
        "records at that place.",
    ),
    "undecodable_metadata": Check(
        Severity.WARNING,
        "a consumer's subscription or assignment can't be read",
        "A consumer's subscription or assignment isn't in the form of the consumer protocol. The coordinator "
        "doesn't look inside, but the group's leader does, and fails. Look for a client that writes these bytes "
        "itself. The audit doesn't decode a subscription or assignment of more than 4 MB, and reports it under "
        "this check.",
    ),
    "offset_order": Check(
        Severity.ERROR,
        "an offset is used twice, or offsets fall",
        "The offset of a batch is wrong: the log used it before, its segment can't hold it, or it doesn't fit "
        "between the batches beside it. Or a segment's name is a lower offset than the end of the segment before "
        "it. Two owners wrote to one partition, or somebody mixed the files of two logs. Nobody can tell then "
        "which value of a key is the newest.",
    ),
    "offset_gap": Check(
        Severity.ERROR,
        "offsets are missing where nothing was ever compacted",
        "Offsets are missing where no compaction can have removed them: in the newest segment, or from the offset "
        "in a broker's `cleaner-offset-checkpoint` on. Records are lost. If the finding has no offset, a whole "
        "segment is missing in front of the one that the detail names. Compaction leaves gaps elsewhere; they are "
        "no findings. If `replica` is true in the detail, the broker may have copied the partition from a leader "
        "that had compacted it. Then the gap comes from that compaction, and nothing is lost.",
    ),
    "wrong_partition": Check(
        Severity.ERROR,
        "a group's records are where no coordinator looks for them",
        "A group has records on another partition than `abs(hash(group id)) % offsets.topic.num.partitions`. No "
        "coordinator looks for the group there. Check whether somebody changed the number of partitions or renamed "
        "a folder. The audit learns that number from the folders. If most groups contradict the number, the audit "
        "doesn't use it, and a note says so; `--partitions` sets it.",
    ),
    "epoch_order": Check(
        Severity.ERROR,
        "a batch of an earlier owner lies behind one of a later owner",
        "A batch of an earlier owner of the partition comes after a batch of a later owner: an owner that was "
        "fenced still wrote. One case is no fault: a broker that took over a log from Tenure counts its epochs "
        "from 0 again.",
    ),
    "producer_epoch_falls": Check(
        Severity.ERROR,
        "a transactional producer wrote although a newer one had fenced it",
        "The producer epoch of a transactional producer falls: in a batch of the partition, or in a record of "
        "`__transaction_state`. `topic` in the detail says which. A coordinator refuses a producer with an old epoch, "
        "so two owners wrote to one partition, or somebody mixed the files of two logs.",
    ),
    "compaction_lost_key": Check(
        Severity.ERROR,
        "a compaction dropped what was still valid",
        "Only with `--before`. The earlier log has a live record of a key, and the later log has none. The audit "
        "makes this check only if the later log ends at most 24 hours after the earlier one "
        "(`log.cleaner.delete.retention.ms`, `--delete-retention-ms`). After that time, a compaction may drop "
        "tombstones, so a missing key may have been deleted. The audit compares only partitions that both logs "
        "have.",
    ),
    "duplicate_instance": Check(
        Severity.ERROR,
        "an instance id is there twice in one generation",
        "Two members of a generation have the same instance id. The coordinator should have fenced one of them.",
    ),
    "leader_not_member": Check(
        Severity.ERROR,
        "the leader is none of the members",
        "The leader is none of the members, or a group without members has a leader. Nobody computes the next "
        "assignment.",
    ),
    "generation_falls": Check(
        Severity.ERROR,
        "a generation is lower than an earlier one of the same group",
        "A generation is lower than an earlier one, and nobody deleted the group in between. A fenced owner wrote, or "
        "somebody merged two logs. In a group of the consumer protocol, the epoch of the group or of its target fell; "
        "`what` says which.",
    ),
    "membership_changed": Check(
        Severity.ERROR,
        "members changed without a new generation",
        "Members came or went without a new generation. Within a generation a static member may return, under a new "
        "member id, and a standby may take the seat of one member with exactly its assignment (`target.group.size`). "
        "Nothing else may change. `reassigned` in the detail names the members whose assignment changed with it. In a "
        "group of the consumer protocol, a member was removed, and the group's epoch didn't grow.",
    ),
    "assignment_changed": Check(
        Severity.ERROR,
        "an assignment changed without a new generation",
        "A member has another assignment than in an earlier record of the same generation. Members that synced before "
        "that record and members that synced after it may read the same partition, or leave one unread. A static "
        "member that comes back keeps the assignment of its seat. Apache Kafka can write such a record if a leader "
        "sends SyncGroup twice: the members keep the first assignment, and a coordinator that loads the group later "
        "has the second. A rebalance repairs it: stop a member for longer than its session timeout, or remove it. In "
        "a group of the consumer protocol, `what` in the detail says which assignment changed. `target`: a member's "
        "target, without a new epoch of the target. `current`: a member that already had its whole target got one "
        "more partition, in the same epoch.",
    ),
    "partition_assigned_twice": Check(
        Severity.ERROR,
        "a topic partition is assigned twice in one generation",
        "Two members of a generation have the same topic partition: both read it and both commit. Or one member "
        "has it twice in its assignment; the detail then names one member. A custom assignor may do the first on "
        "purpose. Kafka's own assignors do neither. In a group of the consumer protocol, the target has it twice.",
    ),
    "partition_held_twice": Check(
        Severity.ERROR,
        "two members have a topic partition at the same time",
        "Two members of a group of the consumer protocol have the same topic partition at the same time: both read it "
        "and both commit. A partition that a member still has to give up counts as its own. The coordinator gives a "
        "partition away only after its holder said that it gave it up, so two owners wrote, or records were lost. "
        "Apache Kafka doesn't load such a partition of the log. The detail has the topic's id.",
    ),
    "records_contradict": Check(
        Severity.ERROR,
        "records of a group contradict one another",
        "The audit makes this check for groups of the consumer protocol, at the end of the log. A member has an "
        "assignment and no subscription, a target's epoch is above the group's, or a member's epoch is above the "
        "target's. A coordinator writes such records together, so some were lost. `tenure log dump --group` shows "
        "what is there.",
    ),
    "target_not_reached": Check(
        Severity.WARNING,
        "members had time to reach their target and did not",
        "Only for groups of the consumer protocol. At the end of the log, members haven't reached the newest target, "
        "although the longest `max.poll.interval.ms` of the group has passed. Or the epoch grew, and the coordinator "
        "made no target for it. The coordinator removes a member that keeps its partitions for longer. So either the "
        "members send no heartbeats, or the coordinator stood still. `tenure explain` names the member for which the "
        "group waits.",
    ),
    "subscribed_unassigned": Check(
        Severity.WARNING,
        "a topic is subscribed to and assigned to nobody",
        "A member subscribes to a topic, and no member has a partition of it. No member had one before this "
        "rebalance either. Other topics are assigned. The topic doesn't exist, or a static member came back with "
        "another subscription and no rebalance followed (KAFKA-12759, which no Kafka release has fixed). A "
        "rebalance repairs it: stop a member for longer than its session timeout, or remove it.",
    ),
    "deleted_returns": Check(
        Severity.ERROR,
        "a deleted group is back with its old state",
        "Somebody deleted a group, and it came back with members from before, or in exactly the state from before. "
        "The deletion was lost, and a coordinator wrote something older again.",
    ),
    "session_above_cap": Check(
        Severity.WARNING,
        "a session timeout is above what a coordinator allows",
        "A member's session timeout is above `group.max.session.timeout.ms` (`--max-session-ms`). The member "
        "joined under another limit. A coordinator with the present limit refuses the member's next JoinGroup.",
    ),
    "rebalance_storm": Check(
        Severity.WARNING,
        "a group rebalanced too often within an hour",
        "A group rebalanced more than `--max-rebalances` times within an hour. In a compacted log, one record may "
        "stand for a month of rebalances. The audit then assumes that they were spread evenly, so it counts too "
        "few rather than too many. The detail has the known causes, inferred or recorded. If members join and "
        "leave, give them instance ids. If members leave or expire although nobody stopped them, they take longer "
        "than `max.poll.interval.ms` between two polls, or their session timeout is too short.",
    ),
    "instance_contested": Check(
        CONFLICT_SEVERITY,
        "two programs had one instance id, and one fenced the other",
        "The server recorded in `__rebalance_events` that a client was fenced although its program still ran. `found` "
        "names the member that was fenced last and the one that fenced it; `fencings` says how often the server "
        "fenced one of them. `tenure doctor` calls this finding `instance_id_conflict`. What to do: "
        f"{CONFLICT_ADVICE}.",
    ),
    "restarts_in_a_loop": Check(
        LOOP_SEVERITY,
        "an instance id restarts in a loop",
        f"A static member's seat went to a new member id {LOOP_MIN} times or more within {LOOP_MS // 60_000} minute. "
        "`tenure doctor` finds this too, under this name. The log names only the first client of a seat. If no events "
        "were recorded, the audit can't tell restarts from other returns, and `found` counts returns. "
        f"What to do: {LOOP_ADVICE}.",
    ),
    "instance_never_returns": Check(
        Severity.WARNING,
        "instance ids go for good and new ones come in their place",
        "Two or more instance ids are gone for good, and two or more new ones came in their place. The pod names "
        "of a Deployment do this: each rollout rebalances twice for each pod. Use the names of a StatefulSet, or "
        "other names that stay.",
    ),
    "session_shorter_than_gap": Check(
        Severity.WARNING,
        "a static member lost its seat and came back",
        "A static member expired, left, or was removed by an operator, and came back within "
        "`group.max.session.timeout.ms` (`--max-session-ms`). The log doesn't say which of the three happened. If "
        "the program only restarted, its restart takes longer than its session timeout: set `session.timeout.ms` "
        "above `gap_ms`, about the time that the member was away. If all members of a group go at once, as when "
        "somebody stops a service, they are one finding.",
    ),
    "pending_without_end": Check(
        Severity.WARNING,
        "offsets of a transaction wait for an end that doesn't come",
        "A producer committed these offsets in a transaction, and no marker ends it, although a coordinator should "
        "have ended it: `why` in the detail has the reason. So the offsets don't count, and clients that ask for "
        "stable offsets get UNSTABLE_OFFSET_COMMIT until a marker ends it. If the folder has no `__transaction_state`, "
        "or not all of its partitions, the audit waits for 16 minutes: the longest timeout, 15 minutes, and one more. "
        "What to do: `tenure transactions find-hanging` finds it on a running server, and `tenure transactions abort "
        "--hanging` ends it. Apache Kafka 4.3 can leave such a transaction behind if it is killed after a commit.",
    ),
    "marker_without_transaction": Check(
        Severity.WARNING,
        "a marker ends a transaction of which no transactional id knows",
        "A marker in the log is of a producer that no transactional id in `__transaction_state` has or had. Records "
        "of `__transaction_state` are lost, or an administrator sent the marker for a wrong producer. The audit makes "
        "this check only if the folder has all partitions of `__transaction_state`, and for markers of the last 7 days "
        "(`transactional.id.expiration.ms`): a coordinator may have forgotten an older id.",
    ),
    "orphan_offsets": Check(
        Severity.NOTICE,
        "committed offsets that nobody uses any more",
        "Nobody uses these committed offsets. Somebody deleted the group after these commits; or the group has "
        "been empty for longer than `offsets.retention.minutes` (`--offsets-retention-minutes`); or no member "
        "subscribes to their topic, and the commits are older than this setting. A coordinator should have dropped "
        "them.",
    ),
    "commit_back": Check(
        Severity.NOTICE,
        "a committed offset went back",
        "A committed offset is lower than the one before it. Somebody reset it, or a consumer that had lost the "
        "partition still committed. The group reads the records between the two offsets a second time. A client "
        "with automatic commits may commit 0 where a higher offset was.",
    ),
}


class Finding(NamedTuple):
    """A result of a check. offset: of the record in the metadata log. detail: further facts, as JSON."""

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
    """The findings about one group on one partition."""

    def __init__(self, partition: int, group: str) -> None:
        self.found: list[Finding] = []
        self._partition = partition
        self._group = group
        self._going_on: dict[str, Collection[Hashable]] = {}

    def add(self, check: str, offset: int | None, generation: int | None = None, /, **detail: Any) -> None:
        """Add a finding; the arguments are those of `finding`."""
        self.found.append(finding(check, self._partition, offset, self._group, generation, **detail))

    def add_new(self, check: str, going_on: Mapping[Hashable, Mapping[str, Any]], offset: int, generation: int) -> None:
        """Add the faults that this check didn't have at its last call: a fault that goes on is one finding.

        going_on: all faults that there are now, each with its detail.
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
    """The finding for a row of `other`; None for kinds of records that are only counted."""
    partition, segment, position, offset, _ts, kind, _version, group, size, reason = row
    check = _CHECK_OF_KIND.get(kind)
    if check is None:
        return None
    return finding(check, partition, offset, group, segment=segment, position=position, size=size, reason=reason)
