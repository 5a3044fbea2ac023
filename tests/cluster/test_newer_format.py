"""Records and keys of a newer version are refused with one clear error, and stay as they are.

House rule: a test writes into etcd what a newer version might, and compares all keys afterwards.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.group.partition import partition_for
from protocol.messages import ListGroupsRequest
from schemas.errors import ErrorCode
from tests.cli.conftest import make_app, run_app
from tests.cluster.test_seats import refusal
from tests.support.cluster_probe import TOPIC
from tests.support.etcd import Etcd
from tests.support.patience import WITHIN_S
from tests.support.raw import ask
from tests.support.requests import commit_request, topics_request
from tests.support.tenure import wait_until
from tests.support.tenure_cluster import ClusterNode, TenureCluster

pytestmark = pytest.mark.etcd

COUNT = 50
VERSION = b"\0\x09"
"""The first bytes of a value: a version that no release of Kafka has."""
GROUPS = {
    "classic": (b"\0\2", b"group 'classic': unknown value version 9"),
    "offset": (b"\0\1", b"unknown offset value version 9"),
    "consumer": (b"\0\3", b"ConsumerGroupMetadataValue has no version 9"),
}
"""Groups, the versions of the record keys that get such a value, and the reasons that the log gives."""


@pytest.fixture
def cluster(etcd: Etcd) -> Iterator[TenureCluster]:
    """One node on it."""
    with TenureCluster(etcd, nodes=1, settings={"tenure.topics": f"{TOPIC}:1"}) as running:
        yield running


def put(etcd: Etcd, key: str, value: bytes) -> None:
    """Write a key; surrogates in it stand for its bytes."""
    name = key.encode(errors="surrogateescape")
    pair = {"key": base64.b64encode(name).decode(), "value": base64.b64encode(value).decode()}
    etcd.ask("/v3/kv/put", pair)


def delete(etcd: Etcd, key: str) -> None:
    """Delete a key."""
    etcd.ask("/v3/kv/deleterange", {"key": base64.b64encode(key.encode(errors="surrogateescape")).decode()})


def error_of(node: ClusterNode, group: str, offset: int) -> int:
    """The error of a commit of a program that is no member."""
    answer: Any = ask(node.port, commit_request(group, {(TOPIC, 0): offset}), 7)
    error: int = answer.topics[0].partitions[0].error_code
    return error


def record_key(cluster: TenureCluster, group: str, version: bytes) -> str:
    """The key in etcd of a group's record."""
    name = version + len(group).to_bytes(2) + group.encode()
    if version == b"\0\1":
        name += len(TOPIC).to_bytes(2) + TOPIC.encode() + bytes(4)
    return f"/{cluster.name}/log/{partition_for(group, COUNT):03d}/" + name.decode(errors="surrogateescape")


def test_a_record_of_a_newer_version_is_refused_and_stays(cluster: TenureCluster) -> None:
    """Groups of its partition get COORDINATOR_NOT_AVAILABLE, and a line says why; all other groups are served.

    A record whose key has an unknown version is passed over. All of them are still there when a version comes that
    knows them.
    """
    (node,), etcd = cluster.nodes, cluster.etcd
    partitions = {partition_for(group, COUNT): reason for group, (_, reason) in GROUPS.items()}
    other = next(name for name in map(str, range(COUNT)) if partition_for(name, COUNT) not in partitions)
    for group in (*GROUPS, other):
        assert error_of(node, group, 7) == ErrorCode.NONE
    assert node.stop() == 0
    logs = f"/{cluster.name}/log/"
    former = etcd.values(logs)
    for group, (version, _) in GROUPS.items():
        put(etcd, record_key(cluster, group, version), VERSION + b"of a newer version")
    put(etcd, record_key(cluster, other, b"\0\x63"), VERSION)
    put(etcd, record_key(cluster, "offset", b"\0\x63"), VERSION)
    newer = etcd.values(logs)
    assert len(newer) > len(former)
    mark = node.mark()
    node.start()
    wait_until(lambda: error_of(node, other, 8) == ErrorCode.NONE, "the other group is served", WITHIN_S)
    refused = lambda: len(node.events("partition_refused", since=mark)) == len(GROUPS)  # noqa: E731 - a word for a loop
    wait_until(refused, "a line for each partition", WITHIN_S)
    for group in GROUPS:
        assert error_of(node, group, 8) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    listed: Any = ask(node.port, ListGroupsRequest(), 4)
    assert [each.group_id for each in listed.groups] == [other]
    lines = node.events("partition_refused", since=mark)
    assert {line["partition"]: line["reason"].encode() for line in lines} == {
        partition: b"it holds a record that can't be read: " + reason for partition, reason in partitions.items()
    }
    assert {line["level"] for line in lines} == {"error"}
    (skipped,) = node.events("records_skipped", since=mark)
    assert skipped["records"] == {"key version 99": 1}
    assert node.stop() == 0
    now = etcd.values(logs)
    changed = record_key(cluster, other, b"\0\1")
    assert now.pop(changed) != newer.pop(changed)
    assert now == newer
    assert not [line for line in node.events(since=mark) if line["event"] in {"engine_broke", "coordinator_broke"}]
    for group, (version, _) in GROUPS.items():
        key = record_key(cluster, group, version)
        put(etcd, key, former[key]) if key in former else delete(etcd, key)
    node.start()
    wait_until(lambda: not any(error_of(node, group, 9) for group in GROUPS), "all groups are served", WITHIN_S)


def test_a_partition_whose_owner_is_not_there_comes_back(cluster: TenureCluster) -> None:
    """Its key names a node that never was, without a lease: the node removes the key, says so, and serves the groups.

    A key that can't be read stays; then the doctor names its partition.
    """
    (node,), etcd = cluster.nodes, cluster.etcd
    assert error_of(node, "g", 1) == ErrorCode.NONE
    partition = partition_for("g", COUNT)
    key = f"/{cluster.name}/own/{partition:03d}"
    put(etcd, key, b"77")
    (line,) = node.wait_for_event("owner_key_removed")
    assert (line["key"], line["owner"]) == (key, "77")
    wait_until(lambda: error_of(node, "g", 2) == ErrorCode.NONE, "the group is served", WITHIN_S)
    assert etcd.values(key) == {key: str(node.number).encode()}
    put(etcd, key, b"node 77")
    node.wait_for_event("key_unreadable")
    doctor = ("doctor", "--all", "--bootstrap-server", node.bootstrap, "--timeout", str(WITHIN_S))
    found = f"no node has 1 of the partitions of __consumer_offsets ({partition})"
    wait_until(lambda: found in run_app(make_app("doctor"), *doctor).out, "the doctor names the partition", WITHIN_S)
    delete(etcd, key)
    wait_until(lambda: error_of(node, "g", 3) == ErrorCode.NONE, "the group is served", WITHIN_S)


def test_a_node_that_finds_a_newer_format_says_so_in_one_line_and_writes_nothing(
    cluster: TenureCluster, tmp_path: Path
) -> None:
    """Exit code 2. A node that runs goes on: it was there before."""
    etcd = cluster.etcd
    name = f"/{cluster.name}/meta"
    meta = etcd.values(name)[name]
    put(etcd, name, meta.replace(b'"format": 1', b'"format": 2, "later": [1]'))
    before = etcd.values(f"/{cluster.name}/")
    node = ["--cluster", cluster.name, "--node-id", "9", "--data-dir", str(tmp_path / "data")]
    line = refusal("--store", etcd.store, *node)
    assert "the cluster's keys have format 2, and this version knows 1" in line
    assert etcd.values(f"/{cluster.name}/") == before
    assert error_of(cluster.nodes[0], "g", 1) == ErrorCode.NONE
    put(etcd, name, b"\xff\0")
    assert "the cluster's keys have format unknown" in refusal("--store", etcd.store, *node)


def test_an_entry_in_another_form_is_left_out(cluster: TenureCluster) -> None:
    """One line names its key, at a node that runs and at one that starts; what comes after it works."""
    (node,), etcd = cluster.nodes, cluster.etcd
    entries = f"/{cluster.name}/state/entry/"
    bad = {f"{entries}topic/bad": b"nonsense", f"{entries}topic/worse": b'{"a": 1}', f"{entries}set/acls:x": b""}
    for key, value in bad.items():
        put(etcd, key, value)

    def told(mark: int) -> list[str]:
        return sorted(line["key"] for line in node.events("key_unreadable", since=mark))

    wait_until(lambda: told(0) == sorted(bad), "the lines", WITHIN_S)
    assert create(node, "bad") == ErrorCode.TOPIC_ALREADY_EXISTS
    assert create(node, "good") == ErrorCode.NONE
    assert error_of(node, "g", 1) == ErrorCode.NONE
    assert node.stop() == 0
    mark = node.mark()
    node.start()
    wait_until(lambda: error_of(node, "g", 2) == ErrorCode.NONE, "the group is served", WITHIN_S)
    assert told(mark) == sorted(bad)
    assert create(node, "good") == ErrorCode.TOPIC_ALREADY_EXISTS
    assert {key: etcd.values(entries)[key] for key in bad} == bad
    assert not [line for line in node.events() if line["event"] in {"engine_broke", "coordinator_broke"}]


def create(node: ClusterNode, name: str) -> int:
    """The error of the creation of a topic."""
    answer: Any = ask(node.port, topics_request({name: 1}), 5)
    error: int = answer.topics[0].error_code
    return error
