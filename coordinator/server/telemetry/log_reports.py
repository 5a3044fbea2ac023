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
    """A kind of log line. text: with places for the fields; `{}` is the name of the log's folder. rest: behind it."""

    level: Level
    text: str
    rest: Callable[[Fields], str] = lambda _: ""


REPORTS = {
    "tail_cut": Report(
        Level.WARN,
        "{}: {size} bytes from {position} of {file} to its end are no whole batch with "
        "the right checksum: an interrupted write, or damage to the last batch. They are cut off, and kept beside "
        f"the file in {LAST_CUT}",
    ),
    "compacted": Report(Level.INFO, "{}: compacted from {size_before} to {size_after} bytes in {duration_s} s"),
    "compaction_failed": Report(Level.WARN, "{}: compaction is put off: {reason}"),
    "load_progress": Report(Level.INFO, "Loading {}: {percent} percent"),
    "transactions_open": Report(
        Level.WARN,
        "{}: {commits} commits of offsets belong to {transactions} open transactions: "
        "they count once these are committed",
    ),
    "journal_recovered": Report(
        Level.INFO,
        "Journal of node {node}: {size} bytes of {partitions} partitions read back",
        lambda said: f"; loads of these try again: {', '.join(said['left'])}" if said["left"] else "",
    ),
    "journal_cut": Report(
        Level.WARN,
        "{size} bytes at {position} of {file} are no whole window: an interrupted write, "
        "of which nothing was acknowledged, or damage to the last window. They are left out",
    ),
    "journal_left_out": Report(
        Level.WARN,
        "The journal has no room, each partition is synced for itself for now: {reason}",
    ),
    "lease_lost": Report(
        Level.WARN,
        "The lease of this node is gone: etcd didn't hear of it in time. Other nodes take over its "
        "{partitions} partitions",
    ),
    "hand_over_unfinished": Report(
        Level.WARN,
        "Stopped before {partitions} partitions were handed over. All that was acknowledged is durable; "
        "other nodes take them over as soon as they can",
    ),
    "node_id_taken": Report(
        Level.ERROR,
        "Another process is node {node} of this cluster: give each node an id of its own",
    ),
    "key_unreadable": Report(
        Level.ERROR,
        "This version can't read the key {key} in etcd, or its value; a newer version or a person may "
        "have written it. The node leaves it as it is",
    ),
    "owner_key_removed": Report(
        Level.WARN,
        "The key {key} in etcd gave its partition to node {owner}, and had no lease that would "
        "end it. No node writes such a key: a person did, or a program that copies keys without their leases. The "
        "node has removed it",
    ),
    "engine_broke": Report(Level.ERROR, "The client of etcd broke a rule of its own: {trace}"),
    "store_warned": Report(
        Level.WARN,
        "The store of the cluster fills: {used} bytes of its quota of {quota} are in use. At the "
        "quota etcd refuses to write: raise it, or delete groups",
    ),
    "store_full": Report(
        Level.ERROR,
        "The store of the cluster is nearly full, or refuses to write: {used} bytes of its quota of "
        "{quota} are in use, its file has {size}; alarms: ",
        lambda said: str(said["alarms"] or "none"),
    ),
    "store_fine": Report(Level.INFO, "The store of the cluster has room: {used} bytes of {quota} are in use"),
    "store_old": Report(Level.WARN, "{reason}"),
    "store_has_no_users": Report(
        Level.WARN, "etcd has no users, so tenure.store.user counts only once they are switched on"
    ),
    "engine_failed": Report(Level.ERROR, "{} can't be written any more: {error}"),
    "topic_partition_unavailable": Report(Level.ERROR, "{} can't be used: {reason}"),
    "topic_partition_available": Report(Level.INFO, "{} can be written again"),
    "topic_folder_left": Report(Level.WARN, "a folder of a deleted topic can't be removed: {reason}"),
    "topic_folder_taken": Report(Level.WARN, "{} belonged to another topic of that name: it is kept as {stray}"),
    "topic_folder_stray": Report(Level.WARN, "{folder} belongs to no topic: it is kept as {stray}"),
    "topic_not_shrunk": Report(
        Level.WARN, "tenure.topics: {topic} has {partitions} partitions already, not {declared}"
    ),
    "topics_not_written": Report(Level.ERROR, "topics can't be changed: {reason}"),
    "retention_failed": Report(Level.WARN, "{}: old segments can't be removed: {reason}"),
    "segments_removed": Report(Level.INFO, "{}: {segments} old segments are removed"),
    "data_folder_made": Report(Level.INFO, "{folder} is a new data folder: no group is in it yet"),
    "data_folder_open": Report(
        Level.WARN,
        "Every user of this machine gets into {folder} (mode {mode}), where groups, offsets and "
        "credentials are: chmod o-rwx {folder}",
    ),
    "file_lost": Report(
        Level.WARN, "{file} is gone, though the folder was in use: its content is lost, and a new file is begun"
    ),
    "start_hangs": Report(
        Level.ERROR,
        "The start still waits for {store}: the server ends without it. Nothing that was acknowledged is lost",
    ),
    "disk_hangs": Report(
        Level.ERROR,
        "The disk hangs ({log}): the server ends without it. All that was acknowledged is on disk; what "
        "waited to be written there is lost",
    ),
}
"""By name. A report whose name isn't here makes no line: other code writes the line about it."""


def report(lines: Lines, name: str, log: str = "", /, **fields: object) -> None:
    """Write the line of a report, if it has one. log: the name of the log's folder."""
    known = REPORTS.get(name)
    if known is not None:
        lines.write(known.level, name, known.text.format(log, **fields) + known.rest(fields), **fields)
