"""Reports of the logs and of the store, as log lines: one table of names, levels and texts.

House rule: a name and its fields are an interface (docs/run/events.md); the text is for people.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from coordinator.log.segments.tail import LAST_CUT
from coordinator.loop.lines import Level, Lines

Fields = Mapping[str, Any]


class Report(NamedTuple):
    """A kind of log line. text: makes its text from the name of the log's folder and the fields."""

    level: Level
    text: Callable[[str, Fields], str]


REPORTS = {
    "tail_cut": Report(
        Level.WARN,
        lambda log, said: (
            f"{log}: {said['size']} bytes from {said['position']} of {said['file']} to its end are no whole batch with "
            f"the right checksum: an interrupted write, or damage to the last batch. They are cut off, and kept beside "
            f"the file in {LAST_CUT}"
        ),
    ),
    "compacted": Report(
        Level.INFO,
        lambda log, said: (
            f"{log}: compacted from {said['size_before']} to {said['size_after']} bytes in {said['duration_s']} s"
        ),
    ),
    "compaction_failed": Report(Level.WARN, lambda log, said: f"{log}: compaction is put off: {said['reason']}"),
    "load_progress": Report(Level.INFO, lambda log, said: f"Loading {log}: {said['percent']} percent"),
    "transactions_open": Report(
        Level.WARN,
        lambda log, said: (
            f"{log}: {said['commits']} commits of offsets belong to {said['transactions']} open transactions: "
            "they count once these are committed"
        ),
    ),
    "journal_recovered": Report(
        Level.INFO,
        lambda _, said: (
            f"Journal of node {said['node']}: {said['size']} bytes of {said['partitions']} partitions read back"
            + (f"; loads of these try again: {', '.join(said['left'])}" if said["left"] else "")
        ),
    ),
    "journal_cut": Report(
        Level.WARN,
        lambda _, said: (
            f"{said['size']} bytes at {said['position']} of {said['file']} are no whole window: an interrupted write, "
            "of which nothing was acknowledged, or damage to the last window. They are left out"
        ),
    ),
    "journal_left_out": Report(
        Level.WARN,
        lambda _, said: f"The journal has no room, each partition is synced for itself for now: {said['reason']}",
    ),
    "lease_lost": Report(
        Level.WARN,
        lambda _, said: (
            f"The lease of this node is gone: etcd didn't hear of it in time. Other nodes take over its "
            f"{said['partitions']} partitions"
        ),
    ),
    "hand_over_unfinished": Report(
        Level.WARN,
        lambda _, said: (
            f"Stopped before {said['partitions']} partitions were handed over. All that was acknowledged is durable; "
            "other nodes take them over as soon as they can"
        ),
    ),
    "node_id_taken": Report(
        Level.ERROR,
        lambda _, said: f"Another process is node {said['node']} of this cluster: give each node an id of its own",
    ),
    "key_unreadable": Report(
        Level.ERROR,
        lambda _, said: (
            f"This version can't read the key {said['key']} in etcd, or its value; a newer version or a person may "
            "have written it. The node leaves it as it is"
        ),
    ),
    "owner_key_removed": Report(
        Level.WARN,
        lambda _, said: (
            f"The key {said['key']} in etcd gave its partition to node {said['owner']}, and had no lease that would "
            "end it. No node writes such a key: a person did, or a program that copies keys without their leases. The "
            "node has removed it"
        ),
    ),
    "engine_broke": Report(Level.ERROR, lambda _, said: f"The client of etcd broke a rule of its own: {said['trace']}"),
    "store_warned": Report(
        Level.WARN,
        lambda _, said: (
            f"The store of the cluster fills: {said['used']} bytes of its quota of {said['quota']} are in use. At the "
            "quota etcd refuses to write: raise it, or delete groups"
        ),
    ),
    "store_full": Report(
        Level.ERROR,
        lambda _, said: (
            f"The store of the cluster is nearly full, or refuses to write: {said['used']} bytes of its quota of "
            f"{said['quota']} are in use, its file has {said['size']}; alarms: {said['alarms'] or 'none'}"
        ),
    ),
    "store_fine": Report(
        Level.INFO,
        lambda _, said: f"The store of the cluster has room: {said['used']} bytes of {said['quota']} are in use",
    ),
    "store_old": Report(Level.WARN, lambda _, said: str(said["reason"])),
    "store_has_no_users": Report(
        Level.WARN, lambda *_: "etcd has no users, so tenure.store.user counts only once they are switched on"
    ),
    "engine_failed": Report(Level.ERROR, lambda log, said: f"{log} can't be written any more: {said['error']}"),
    "topic_partition_unavailable": Report(Level.ERROR, lambda log, said: f"{log} can't be used: {said['reason']}"),
    "topic_partition_available": Report(Level.INFO, lambda log, _: f"{log} can be written again"),
    "topic_folder_left": Report(
        Level.WARN, lambda _, said: f"a folder of a deleted topic can't be removed: {said['reason']}"
    ),
    "topic_folder_taken": Report(
        Level.WARN, lambda log, said: f"{log} belonged to another topic of that name: it is kept as {said['stray']}"
    ),
    "topic_folder_stray": Report(
        Level.WARN, lambda _, said: f"{said['folder']} belongs to no topic: it is kept as {said['stray']}"
    ),
    "topic_not_shrunk": Report(
        Level.WARN,
        lambda _, said: (
            f"tenure.topics: {said['topic']} has {said['partitions']} partitions already, not {said['declared']}"
        ),
    ),
    "topics_not_written": Report(Level.ERROR, lambda _, said: f"topics can't be changed: {said['reason']}"),
    "retention_failed": Report(Level.WARN, lambda log, said: f"{log}: old segments can't be removed: {said['reason']}"),
    "segments_removed": Report(Level.INFO, lambda log, said: f"{log}: {said['segments']} old segments are removed"),
    "data_folder_made": Report(
        Level.INFO, lambda _, said: f"{said['folder']} is a new data folder: no group is in it yet"
    ),
    "data_folder_open": Report(
        Level.WARN,
        lambda _, said: (
            f"Every user of this machine gets into {said['folder']} (mode {said['mode']}), where groups, offsets and "
            f"credentials are: chmod o-rwx {said['folder']}"
        ),
    ),
    "file_lost": Report(
        Level.WARN,
        lambda _, said: (
            f"{said['file']} is gone, though the folder was in use: its content is lost, and a new file is begun"
        ),
    ),
    "start_hangs": Report(
        Level.ERROR,
        lambda _, said: (
            f"The start still waits for {said['store']}: the server ends without it. Nothing that was acknowledged is "
            "lost"
        ),
    ),
    "disk_hangs": Report(
        Level.ERROR,
        lambda _, said: (
            f"The disk hangs ({said['log']}): the server ends without it. All that was acknowledged is on disk; what "
            "waited to be written there is lost"
        ),
    ),
}
"""By name. A report whose name isn't here makes no line: other code writes the line about it."""


def report(lines: Lines, name: str, log: str = "", /, **fields: object) -> None:
    """Write the line of a report, if it has one. log: the name of the log's folder."""
    known = REPORTS.get(name)
    if known is not None:
        lines.write(known.level, name, known.text(log, fields), **fields)
