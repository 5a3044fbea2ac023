"""The store: the stored state of a server, opened as one: the groups' log, the topics, the cluster id, the owners.

    open_store    the files of a data folder, for a server with one process
    open_share    the same files, for one of several workers; their supervisor has locked and read the folder
    open_cluster  etcd, for one node of a cluster
    in_memory     any engine, without a data folder
    share_memory  a log in memory, for one of several nodes in one process

A server has no other access to its stored state. It passes each changed list of topics to `save_topics`, and keeps the
records of topics in `folder`, if the store has one.

House rule: a store is opened only under the lock of its folder; nothing is created in a foreign folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from stat import S_IMODE, S_IROTH, S_IWOTH, S_IXOTH
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from coordinator.config import Config, ConfigError
from coordinator.log.advice import explain
from coordinator.log.cluster import Cluster
from coordinator.log.embedded.engine import EmbeddedEngine
from coordinator.log.embedded.report import Report
from coordinator.log.embedded.upkeep import Cleaning
from coordinator.log.engine import NOBODY, Engine, EngineError, Unavailable
from coordinator.log.memory import MemoryEngine, MemoryLog
from coordinator.log.meta import claim_folder, refuse_foreign
from coordinator.log.segments.counts import Counts
from coordinator.log.segments.disk import Disk, reason
from coordinator.log.segments.journal import recover
from coordinator.log.segments.lock import lock_data_folder, partition_lock
from coordinator.log.topics.entries import SharedEntries, declare_in, topic_entry, topic_if_readable
from coordinator.log.topics.folders import find_strays, set_aside_stray
from coordinator.log.topics.list import Topic, TopicsFile, declare, kafka_id

if TYPE_CHECKING:
    from coordinator.log.etcd.client import Access
    from coordinator.log.etcd.engine import EtcdEngine

Saved = Callable[[EngineError | None], object]
"""Called on any thread with None if a list of topics is durable, otherwise with the error."""

WriteOut = Callable[[Iterable[int], Callable[[], object]], None]
"""See `EmbeddedEngine.write_out`."""

Owners = Callable[[int], int]
"""The id of the node that owns a partition of a log of the store (not of a topic); the owner may change later."""


class OtherLog(NamedTuple):
    """Another log of a store, beside the groups'. exists: whether it was ever open.

    engine: makes the engine of that log, which has so many partitions. owners: of these.
    """

    exists: Callable[[str], bool]
    engine: Callable[[str, int], Engine]
    owners: Owners


class Notice(NamedTuple):
    """A fact about the data folder for an operator: a name, and fields."""

    name: str
    fields: dict[str, object]


def _refuse_to_save(_topics: Iterable[Topic], _done: Saved) -> None:
    raise AssertionError("a worker asks its supervisor, and a node of a cluster the others")


class Store(NamedTuple):
    """See the module.

    topics: by name, as stored. save_topics: makes a list durable, on its own thread. folder: for records of topics;
    None: the store keeps no records of topics.
    notices: facts for the operator, found at the start. reconfigure: compacts the groups' log by other settings.
    close: waits for the disk, and closes everything. cluster: None if no other node shares the store. entries: what all
    nodes of a cluster share, in place of `topics` and `save_topics`. write_out: called before `folder` is read for
    records that an engine writes; None: the folder has no such records. other: None if the store has no log but the
    groups' and the topics'.
    """

    engine: Engine
    cluster_id: str
    owners: Owners
    close: Callable[[], None]
    topics: Mapping[str, Topic] = {}
    save_topics: Callable[[Iterable[Topic], Saved], None] = _refuse_to_save
    folder: Path | None = None
    notices: Sequence[Notice] = ()
    reconfigure: Callable[[Config], None] = lambda _: None
    cluster: Cluster | None = None
    entries: SharedEntries | None = None
    write_out: WriteOut | None = None
    other: OtherLog | None = None


OpenStore = Callable[[Config, Callable[[], UUID], Report, Counts], Store]
"""Opens a store; this waits for the disk, or for etcd.

Takes the settings; a function that makes ids; a report, as of EmbeddedEngine; and counts, for the appends. Raises
ConfigError, EngineError or OSError; its text gives the reason in one line.
"""


BY_OTHERS = S_IROTH | S_IWOTH | S_IXOTH
"""Any of these bits lets every user of the machine into a folder."""


class Contents(NamedTuple):
    """The cluster id and the topics of a data folder. The topics include those that the configuration declares."""

    cluster_id: str
    topics: dict[str, Topic]
    file: TopicsFile
    notices: list[Notice]


def node_in_turn(partition: int, node_ids: Sequence[int]) -> int:
    """The node that owns a partition: partition 0 goes to the first node, 1 to the second, and so on in turn."""
    return node_ids[partition % len(node_ids)]


def check_folder(config: Config) -> None:
    """Raise ConfigError if the data folder is foreign. This creates nothing in it."""
    try:
        refuse_foreign(Path(config.log_dirs))
    except (ConfigError, OSError) as error:
        raise ConfigError(f"log.dirs: {explain(error)}") from error


def lock_folder(config: Config) -> Callable[[], None]:
    """Lock the data folder for this process; return the function that unlocks it. Raises ConfigError."""
    try:
        return lock_data_folder(Disk(), Path(config.log_dirs)).release
    except (EngineError, OSError) as error:
        raise ConfigError(f"log.dirs: {explain(error)}") from error


def read_folder(config: Config, fresh_id: Callable[[], UUID]) -> Contents:
    """Claim the locked data folder, and read its contents. Raises ConfigError, EngineError, OSError."""
    data_dir = Path(config.log_dirs)
    cluster_id, lost, is_new = claim_folder(data_dir, config, fresh_id)
    notices = [Notice("data_folder_made", {"folder": str(data_dir.absolute())})] if is_new else []
    notices += [Notice("file_lost", {"file": str(path)}) for path in lost]
    mode = data_dir.stat().st_mode
    if mode & BY_OTHERS:
        notices.append(Notice("data_folder_open", {"folder": str(data_dir.absolute()), "mode": f"{S_IMODE(mode):04o}"}))
    file = TopicsFile(data_dir)
    saved = file.load()
    topics = saved or {}
    declared, too_few = declare(topics, config.topic_list(), fresh_id)
    notices += _shrink_notices(too_few)
    topics |= {topic.name: topic for topic in declared}
    if declared or saved is None:
        file.save(topics.values())
    if saved is not None:
        disk = Disk()
        for folder in find_strays(disk, data_dir, topics.values()):
            stray = set_aside_stray(disk, folder)
            notices.append(Notice("topic_folder_stray", {"folder": str(folder), "stray": str(stray)}))
    return Contents(cluster_id, topics, file, notices)


def recover_journals(config: Config) -> list[Notice]:
    """Bring back what the journals of all nodes have, in the locked folder. Raises EngineError, OSError."""
    done = recover(Disk(), Path(config.log_dirs))
    return [Notice(name, fields) for recovery in done for name, fields in recovery.events()]


def open_store(config: Config, fresh_id: Callable[[], UUID], report: Report, counts: Counts) -> Store:
    """Open the files of the data folder, for the only server that uses it."""
    check_folder(config)
    unlock = lock_folder(config)
    owners = [config.node_id] * config.offsets_topic_num_partitions
    engine = _engine(config, owners, report, counts, recovers_all=True)
    try:
        cluster_id, topics, file, notices = read_folder(config, fresh_id)
        engine.recover()
    except BaseException:
        unlock()
        raise
    saving = ThreadPoolExecutor(1, thread_name_prefix="topics-file")

    def save_topics(topics: Iterable[Topic], done: Saved) -> None:
        saving.submit(_save, file, list(topics), done)

    def close() -> None:
        saving.shutdown(wait=False)
        engine.close()
        unlock()

    return Store(
        engine,
        cluster_id,
        lambda _: config.node_id,
        close,
        topics,
        save_topics,
        Path(config.log_dirs),
        notices,
        _cleaned_by(engine),
        write_out=engine.write_out,
        other=_other_in_folder(engine, config, lambda _: config.node_id, report, counts),
    )


def _other_in_folder(first: EmbeddedEngine, config: Config, owners: Owners, report: Report, counts: Counts) -> OtherLog:
    """Another log in the data folder, whose lock this process has, or its supervisor. first: the groups' engine."""
    data_dir = Path(config.log_dirs)

    def exists(log: str) -> bool:
        locks = partition_lock(data_dir, 0, log).name.removesuffix("0")
        return any(data_dir.glob(f"{log}-*")) or any(data_dir.glob(f"{locks}*"))

    def engine(log: str, partition_count: int) -> Engine:
        cleaning = _cleaning(config)
        return EmbeddedEngine(
            data_dir,
            partition_count,
            config.node_id,
            cleaning=cleaning,
            owners=list(map(owners, range(partition_count))),
            report=partial(report, log=log),
            counts=counts,
            log=log,
            beside=first,
        )

    return OtherLog(exists, engine, owners)


def open_share(
    node_ids: Sequence[int],
    cluster_id: str,
    config: Config,
    _fresh_id: Callable[[], UUID],
    report: Report,
    counts: Counts,
) -> Store:
    """Open the same files for the node of `config`, one of `node_ids`; its supervisor keeps the list of topics."""

    def owner(partition: int) -> int:
        return node_in_turn(partition, node_ids)

    owners = list(map(owner, range(config.offsets_topic_num_partitions)))
    engine = _engine(config, owners, report, counts, recovers_all=False)
    engine.recover()
    return Store(
        engine,
        cluster_id,
        owner,
        engine.close,
        folder=Path(config.log_dirs),
        reconfigure=_cleaned_by(engine),
        write_out=engine.write_out,
        other=_other_in_folder(engine, config, owner, report, counts),
    )


EXTRA_MISSING = "etcd needs an extra: pip install 'tenure[etcd]', or `make install-etcd` in a clone"


def open_cluster(
    config: Config,
    fresh_id: Callable[[], UUID],
    report: Report,
    counts: Counts,  # noqa: ARG001 - as OpenStore: etcd counts its own writes
) -> Store:
    """Open etcd for a node of a cluster. Its data folder has nothing but the topic of events."""
    try:
        # Only a node of a cluster needs the extra.
        from coordinator.log.etcd.engine import open_engine, version_warning  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(f"tenure.store: {EXTRA_MISSING} ({error})") from error

    check_folder(config)
    access = etcd_access(config)
    unlock = lock_folder(config)
    engine: EtcdEngine | None = None
    try:
        engine = open_engine(
            access,
            config.cluster,
            config.node_id,
            config.offsets_topic_num_partitions,
            config.store_lease_ms,
            lambda: kafka_id(fresh_id()),
            lambda name, fields: report(name, **fields),
            quota=config.store_quota_bytes,
        )
        # Only now: a node that etcd refuses leaves no mark.
        _, _, _, notices = read_folder(replace(config, topics=()), fresh_id)
        notices += _declare_shared(engine, config, fresh_id)
    except BaseException as error:
        if engine is not None:
            engine.close()
        unlock()
        if engine is None and isinstance(error, EngineError):
            text = str(error)
            raise ConfigError(text if text.startswith("offsets.") else f"tenure.store: {text}") from error
        raise
    if warning := version_warning(engine.version):
        notices.append(Notice("store_old", {"reason": warning}))
    if not engine.client.is_known:
        notices.append(Notice("store_has_no_users", {}))

    def close() -> None:
        engine.close()
        unlock()

    return Store(
        engine,
        engine.cluster_id,
        lambda partition: NOBODY if (owner := engine.owner(partition)) is None else owner,
        close,
        folder=Path(config.log_dirs),
        notices=notices,
        cluster=engine,
        entries=engine,
    )


def _declare_shared(entries: SharedEntries, config: Config, fresh_id: Callable[[], UUID]) -> list[Notice]:
    """Make the topics that the configuration declares, unless a node has. Raises EngineError."""
    counts = config.topic_list()
    over: SimpleQueue[EngineError | None] = SimpleQueue()
    entries.change(lambda present: declare_in(present, counts, fresh_id), over.put)
    error = over.get()
    if error is not None:
        raise error
    present = entries.follow(lambda _: None)
    found = [topic_if_readable(entry, present[entry]) for entry in map(topic_entry, counts) if entry in present]
    topics = {topic.name: topic for topic in found if topic is not None}
    return _shrink_notices(declare(topics, counts, fresh_id).too_few)


def etcd_access(config: Config) -> Access:
    """How to reach etcd. Raises ConfigError."""
    from coordinator.log.etcd.client import Access  # noqa: PLC0415 - as above

    ca, key = config.store_ssl_truststore_location, config.store_ssl_keystore_location
    password = ""
    for name, path in (
        ("tenure.store.ssl.truststore.location", ca),
        ("tenure.store.ssl.keystore.location", key),
        ("tenure.store.password.file", config.store_password_file),
    ):
        try:
            text = Path(path).read_text(encoding="utf-8") if path else ""
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{name}: {path}: {reason(error) if isinstance(error, OSError) else error}") from error
        if name == "tenure.store.password.file":
            password = text.rstrip("\r\n")
    keystore = Path(key) if key else None
    return Access(config.store, Path(ca) if ca else None, keystore, keystore, config.store_user, password)


def in_memory(engine: Engine, config: Config, fresh_id: Callable[[], UUID], _report: Report, _counts: Counts) -> Store:
    """Use the caller's engine; the topics are lost when the process ends."""
    declared, _ = declare({}, config.topic_list(), fresh_id)
    topics = {topic.name: topic for topic in declared}
    cluster_id = kafka_id(fresh_id())

    def owners(_partition: int) -> int:
        return config.node_id

    other = OtherLog(engine.has, engine.other, owners) if isinstance(engine, MemoryEngine) else None
    return Store(engine, cluster_id, owners, engine.close, topics, _at_once, other=other)


def share_memory(
    log: MemoryLog,
    ids: MemoryLog,
    cluster_id: str,
    folder: Path,
    config: Config,
    _fresh_id: Callable[[], UUID],
    _report: Report,
    _counts: Counts,
) -> Store:
    """Use logs in memory for the node of `config`. The nodes have `folder` in common, for records of topics.

    ids: the log of transactional ids. The caller keeps the list of topics.
    """
    engine = log.engine(config.node_id)
    other = OtherLog(lambda _: ids.was_opened(), lambda *_: ids.engine(config.node_id), ids.owners.__getitem__)
    return Store(engine, cluster_id, log.owners.__getitem__, engine.close, folder=folder, other=other)


def _engine(
    config: Config, owners: Sequence[int], report: Report, counts: Counts, *, recovers_all: bool
) -> EmbeddedEngine:
    return EmbeddedEngine(
        Path(config.log_dirs),
        config.offsets_topic_num_partitions,
        config.node_id,
        segment_size=config.offsets_topic_segment_bytes,
        cleaning=_cleaning(config),
        owners=owners,
        journal=config.journal_enable,
        journal_size=config.journal_bytes,
        recovers_all=recovers_all,
        report=report,
        counts=counts,
    )


def _cleaning(config: Config) -> Cleaning:
    return Cleaning(
        min_cleanable_ratio=config.log_cleaner_min_cleanable_ratio,
        min_compaction_lag_ms=config.log_cleaner_min_compaction_lag_ms,
        delete_retention_ms=config.log_cleaner_delete_retention_ms,
        backoff_ms=config.log_cleaner_backoff_ms,
        roll_ms=config.log_roll_ms,
    )


def _cleaned_by(engine: EmbeddedEngine) -> Callable[[Config], None]:
    return lambda config: engine.clean_by(_cleaning(config))


def _save(file: TopicsFile, topics: Iterable[Topic], done: Saved) -> None:
    try:
        file.save(topics)
    except EngineError as error:
        done(error)
    except Exception as error:  # noqa: BLE001 - a mistake of ours must not leave the change without an outcome
        done(Unavailable(repr(error)))
    else:
        done(None)


def _at_once(_topics: Iterable[Topic], done: Saved) -> None:
    done(None)


def _shrink_notices(topics: Iterable[tuple[Topic, int]]) -> list[Notice]:
    """The notices about topics that have more partitions than the configuration declares."""
    return [
        Notice("topic_not_shrunk", {"topic": topic.name, "partitions": topic.partition_count, "declared": count})
        for topic, count in topics
    ]
