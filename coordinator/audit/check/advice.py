"""What each check's findings mean at length, and what to do: what docs/audit.md says, for the page.

House rule: a text is changed here and there; a test holds the two to each other.
"""

from __future__ import annotations

ADVICE: dict[str, str] = {
    "bad_checksum": (
        "A batch whose CRC-32C is wrong: bytes changed after they were written. Nothing in it is believed, so "
        "commits or a generation may be missing. Restore the file from a replica or a backup; look for the disk's "
        "own errors."
    ),
    "torn_tail": (
        "A segment ends in the middle of a batch. At the end of the newest one it is what a crash leaves: Tenure "
        "cuts it off when it starts, and Kafka after an unclean stop. In a folder that was copied from a running "
        "broker it may be a write under way. In an older segment the file was cut: as `bad_checksum`."
    ),
    "old_format": (
        "Messages of format 0 or 1, as Kafka wrote them before 0.11, and later with an old "
        "`log.message.format.version`. Nothing in them is damaged, but they aren't read here: groups and commits may "
        "be missing from all that is said. Tenure doesn't read them either. When a group commits or rebalances again, "
        "its records are written anew in format 2."
    ),
    "undecodable": (
        "Bytes that are no batch, a batch whose records are not what its header says, or a record that no "
        "coordinator can load, or can have written: of a group of more than 250,000 members, or with more than "
        "1,000,000 topic partitions assigned. A coordinator refuses the partition, or skips the record. The detail "
        "has segment and position; `tenure log dump` shows it."
    ),
    "undecodable_metadata": (
        "A member of a group of consumers said something as its subscription or assignment that isn't the "
        "consumer protocol. The coordinator doesn't look inside, but the group's leader does, and fails. Look for "
        "a client of its own making. More than 4 MB from one member aren't looked into, and found as this."
    ),
    "offset_order": (
        "A batch begins at or below an offset that was already used. Two owners wrote to one partition, or files "
        "of two logs were mixed. The newest value of a key isn't known then."
    ),
    "offset_gap": (
        "Offsets are missing where no compaction can have been: in the newest segment, or behind what a broker's "
        "`cleaner-offset-checkpoint` says that it has cleaned. Records are lost. Where the detail has the position 0 "
        "and no offset is named, a segment is missing between two. Elsewhere gaps are what compaction leaves; so they "
        "are in a broker's replica with other traces of a leader that had compacted, and where the detail says "
        "`replica`, look whether it was filled from such a leader."
    ),
    "wrong_partition": (
        "A group's records are on another partition than `abs(hash(group id)) % offsets.topic.num.partitions`. No "
        "coordinator looks for the group there. Was the number of partitions changed, or a folder renamed? A "
        "number that was taken from a broker's folders is believed unless most groups contradict it."
    ),
    "epoch_order": (
        "A batch of an earlier owner of the partition lies behind one of a later owner: an owner that was fenced "
        "still wrote. A broker that took a log over from Tenure counts its own epochs from 0 again, which is no "
        "fault."
    ),
    "compaction_lost_key": (
        "Only with `--before`. A key that was live in the earlier log has no record in the later one, and the "
        "later one doesn't reach so far that its deletion could have been forgotten (24 hours, "
        "`log.cleaner.delete.retention.ms`, `--delete-retention-ms`). Partitions that only one of the two has are "
        "left out."
    ),
    "duplicate_instance": (
        "Two members of a generation have the same instance id. A coordinator must have fenced one of them."
    ),
    "leader_not_member": (
        "The leader is none of the members, or a group without members has one. Nobody computes the next assignment."
    ),
    "generation_falls": (
        "A generation is lower than an earlier one, and the group wasn't deleted in between. A fenced owner "
        "wrote, or the log is put together from two."
    ),
    "membership_changed": (
        "Members came or went without a new generation. Only a static member's return under a new member id may "
        "do that."
    ),
    "assignment_changed": (
        "A member's assignment isn't the one that an earlier record of the same generation has. Members that got "
        "theirs before and after it may both read a partition, or none of them does. A static member that comes back "
        "keeps the assignment of its seat. Apache Kafka can write this where a leader sent its SyncGroup twice: the "
        "members work by the first, and a coordinator that loads the group later has the second. A rebalance mends "
        "it: restart a member with a longer pause than its session timeout, or remove it."
    ),
    "partition_assigned_twice": (
        "Two members of a generation have the same topic partition: both read it, and both commit. Or one member has "
        "it twice in its assignment: then the detail names that one. A custom assignor may mean the first; none of "
        "Kafka's does either."
    ),
    "subscribed_unassigned": (
        "Somebody subscribes to a topic of which nobody has a partition, and nobody had one when it joined, while "
        "other topics are assigned. Either the topic doesn't exist, or a static member came back with another "
        "subscription and no rebalance followed (KAFKA-12759, which no Kafka has fixed). A rebalance mends it: "
        "restart a member with a longer pause than its session timeout, or remove it."
    ),
    "deleted_returns": (
        "After its deletion a group is back with members from before, or in the very state that it was in. The "
        "deletion was lost and something older was written again."
    ),
    "session_above_cap": (
        "A member's session timeout is above `group.max.session.timeout.ms` (`--max-session-ms`). It joined when "
        "the limit was another; it won't after its next restart."
    ),
    "rebalance_storm": (
        "More than `--max-rebalances` rebalances within an hour. Of those that the log no longer has, as many count as "
        "must have fallen within one hour however they were spread: a compacted log may have one record for a month. "
        "The detail has the causes as they were inferred. "
        "Members that join and leave: give them instance ids. Members that expire: they take longer than "
        "`max.poll.interval.ms`, or the session timeout is too short."
    ),
    "instance_contested": (
        "An instance id was taken over three times within a minute: two programs have the same one and fence each "
        "other, or one starts and crashes again and again. The log keeps the first client id and host, so it "
        "can't name the other. Where the server told of a fencing (`__rebalance_events`), two programs are sure, and "
        "`parties` names who was fenced and by whom, the last time."
    ),
    "instance_never_returns": (
        "Instance ids are gone for good, and as many new ones came in their place. That is what a Deployment's "
        "pod names do: each rollout rebalances twice for each of them. Use a StatefulSet's names, or another name "
        "that stays."
    ),
    "session_shorter_than_gap": (
        "A static member expired, left or was removed by an operator, which the log doesn't tell apart, and came "
        "back within half an hour. If it was a restart, its session timeout is shorter than that takes: it lost "
        "its seat for nothing. `gap_ms` is how long it was away, at least; set `session.timeout.ms` above it. "
        "Members that all went at once, as when a service is stopped, are one finding."
    ),
    "orphan_offsets": (
        "Committed offsets that nobody uses: of a group that was deleted after them, of one that is empty for "
        "longer than `offsets.retention.minutes` (`--offsets-retention-minutes`), or of a topic that no member "
        "subscribes to and older than that. A coordinator should have dropped them."
    ),
    "commit_back": (
        "A committed offset is lower than the one before it. Somebody reset it, or a consumer that had lost the "
        "partition still committed; what lies between was read twice. Clients that commit automatically can put a "
        "0 over an offset."
    ),
}
