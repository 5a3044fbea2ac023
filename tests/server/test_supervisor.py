"""Several workers under a supervisor, as processes: their answers, and the deaths of workers and supervisor."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.client.client import Client
from coordinator.client.groups import list_groups
from coordinator.group.partition import partition_for
from coordinator.server.supervisor import PAUSE_MAX_MS, pause_ms
from protocol.messages import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    DeleteTopicsRequest,
    DescribeConfigsResponse,
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    FindCoordinatorRequest,
    HeartbeatResponse,
    JoinGroupResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
)
from schemas.errors import ErrorCode
from tests.server.harness import heartbeat_request, join_request, sync_request
from tests.support.batches import batch
from tests.support.patience import WITHIN_S
from tests.support.raw import Connection, ask
from tests.support.requests import (
    configs_request,
    describe_configs_request,
    grow_request,
    produce_request,
    topics_request,
)
from tests.support.tenure import Tenure, tenure_command, wait_until

TIMEOUT_MS = int(WITHIN_S * 1000)
"""Of requests, and of workers that a test stops: nothing depends on how fast the machine is."""
SETTINGS: dict[str, str | int] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 6,
    "tenure.topics": "orders:3",
    "tenure.worker.timeout.ms": TIMEOUT_MS,
}
ON_0, ON_1 = "even", "odd"
"""Group ids on an even partition, which belongs to node 0, and on an odd one."""
CONTROLLER = 0


def test_the_groups_are_where_the_tests_say() -> None:
    """The ids of ON_0 and ON_1 are on those partitions."""
    assert [partition_for(group, 6) % 2 for group in (ON_0, ON_1)] == [0, 1]


def supervised(directory: Path, workers: int = 2) -> Tenure:
    """Return a server of several workers."""
    return Tenure(SETTINGS, directory=directory, arguments=["--workers", str(workers)])


@pytest.fixture
def tenure(tmp_path: Path) -> Iterator[Tenure]:
    """Yield two workers, and end them."""
    with supervised(tmp_path) as server:
        yield server
        pids = [event["pid"] for event in server.events("worker_started")]
        server.kill()
        wait_until_gone(pids)


def start_elsewhere(tenure: Tenure) -> None:
    """Start on the same data and on free ports: another program may have the second worker's former port."""
    tenure.port = 0
    tenure.start()


def is_there(pid: int) -> bool:
    """Return whether a process lives; a zombie doesn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_gone(pids: list[int]) -> None:
    """Wait until none of the processes lives."""
    wait_until(lambda: not any(map(is_there, pids)), f"end of processes {pids}", WITHIN_S)


def seat(port: int, group: str) -> JoinGroupResponse:
    """Join as the only member of a group, the static member "i", and sync."""
    with Connection(port) as connection:
        joined: JoinGroupResponse = connection.ask(join_request(group, instance="i", session_ms=60_000), 5)
        assert joined.error_code == ErrorCode.NONE
        assert connection.ask(sync_request(group, joined, "i"), 5).error_code == ErrorCode.NONE
    return joined


def beat(port: int, group: str, joined: JoinGroupResponse) -> int:
    """Return the error code of the member's heartbeat."""
    answer: HeartbeatResponse = ask(port, heartbeat_request(group, joined, "i"), 4)
    return answer.error_code


def topic_request(*names: str, timeout_ms: int = TIMEOUT_MS) -> Message:
    """Return CreateTopics with two partitions for each name."""
    return topics_request(dict.fromkeys(names, 2), timeout_ms=timeout_ms)


def topics_at(port: int) -> dict[str, int]:
    """Return topics and their numbers of partitions as that worker knows them."""
    answer: MetadataResponse = ask(port, MetadataRequest(topics=None), 12)
    return {topic.name or "": len(topic.partitions) for topic in answer.topics}


# The answers of each worker.


def test_every_worker_answers_alike(tenure: Tenure) -> None:
    """Every worker gives the same nodes, controller, leaders, topics, cluster id and coordinators, in every version."""
    assert tenure.node == "0,1"
    first, second = (ask(port, MetadataRequest(topics=None), 12) for port in tenure.ports)
    assert first == second
    assert isinstance(first, MetadataResponse)
    assert [(broker.node_id, broker.port) for broker in first.brokers] == list(enumerate(tenure.ports))
    assert first.controller_id == CONTROLLER
    leaders = {topic.name: {each.leader_id for each in topic.partitions} for topic in first.topics}
    assert leaders == {"__consumer_offsets": {0, 1}, "__rebalance_events": {0, 1}, "orders": {0, 1}}
    for port in tenure.ports:
        for version in range(4):
            for node_id, group in enumerate((ON_0, ON_1)):
                found = ask(port, FindCoordinatorRequest(key=group), version)
                assert (found.node_id, found.port) == (node_id, tenure.ports[node_id])
        found = ask(port, FindCoordinatorRequest(coordinator_keys=[ON_1, ON_0, ON_1]), 4)
        assert [each.node_id for each in found.coordinators] == [1, 0, 1]


def test_every_worker_has_the_replicas_that_it_leads(tenure: Tenure) -> None:
    """A log is in one worker's answer, with its size; it can be moved to where it is, by whichever worker is asked."""
    produce_to_all(tenure.ports[0], "orders", 3)
    produce_to_all(tenure.ports[1], "orders", 3)
    metadata = ask(tenure.ports[0], MetadataRequest(topics=None), 12)
    led = {
        node_id: {
            (topic.name, each.partition_index)
            for topic in metadata.topics
            for each in topic.partitions
            if each.leader_id == node_id
        }
        for node_id in (0, 1)
    }
    for node_id, port in enumerate(tenure.ports):
        answer = ask(port, DescribeLogDirsRequest(topics=None), 4)
        (result,) = answer.results
        assert (result.error_code, result.log_dir) == (ErrorCode.NONE, str(tenure.data_dir))
        sizes = {
            (topic.name, each.partition_index): each.partition_size
            for topic in result.topics
            for each in topic.partitions
        }
        assert sizes.keys() == led[node_id]
        assert {size for (topic, _), size in sizes.items() if topic == "orders"} == {len(batch([(b"k", b"v", 1)]))}
        topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name="orders", partitions=[0, 1, 2])
        folder = AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=result.log_dir, topics=[topic])
        moved = ask(port, AlterReplicaLogDirsRequest(dirs=[folder]), 2)
        assert {
            ("orders", each.partition_index)
            for each in moved.results[0].partitions
            if each.error_code == ErrorCode.NONE
        } == {each for each in led[node_id] if each[0] == "orders"}
        assert {each.error_code for each in moved.results[0].partitions} == {0, ErrorCode.REPLICA_NOT_AVAILABLE}
        for owner, owned in led.items():
            for name, index in owned:
                for replicas, error in (
                    ([owner], ErrorCode.NONE),
                    ([1 - owner], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
                    ([owner, 1 - owner], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
                ):
                    assert reassign(port, name or "", index, replicas) == error


def reassign(port: int, topic: str, partition: int, replicas: list[int]) -> int:
    """Ask for a topic partition to be moved; returns the error code."""
    move = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=partition, replicas=replicas)
    asked = AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[move])
    answer = ask(port, AlterPartitionReassignmentsRequest(topics=[asked]), 0)
    (result,) = answer.responses[0].partitions
    return int(result.error_code)


def test_a_group_is_served_by_its_worker_alone(tenure: Tenure) -> None:
    """Only a group's own worker serves it, the other one answers NOT_COORDINATOR, and a list has all groups."""
    for node_id, group in enumerate((ON_0, ON_1)):
        joined = seat(tenure.ports[node_id], group)
        wrong = tenure.ports[1 - node_id]
        assert beat(wrong, group, joined) == ErrorCode.NOT_COORDINATOR
        described = ask(wrong, DescribeGroupsRequest(groups=[group]), 4)
        assert described.groups[0].error_code == ErrorCode.NOT_COORDINATOR
        assert {event["node"] for event in tenure.events(group=group)} == {node_id}
    for port in tenure.ports:
        with Client(f"127.0.0.1:{port}", WITHIN_S) as client:
            assert [group.group_id for group in list_groups(client)] == [ON_0, ON_1]


# Topics.


def test_a_topic_is_known_to_all_before_it_is_answered(tenure: Tenure) -> None:
    """CreateTopics answers after all workers know the topic; a topic that Metadata creates follows soon."""
    for number, port in enumerate(tenure.ports * 10):
        created = ask(port, topic_request(f"t{number}"), 5)
        assert created.topics[0].error_code == ErrorCode.NONE
        assert [topics_at(other)[f"t{number}"] for other in tenure.ports] == [2, 2]
    wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="auto")], allow_auto_topic_creation=True)
    ask(tenure.ports[1], wanted, 9)
    for port in tenure.ports:
        wait_until(lambda port=port: "auto" in topics_at(port), "auto-creation", WITHIN_S)  # type: ignore[misc]
    assert tenure.stop() == 0
    start_elsewhere(tenure)
    assert {name: count for name, count in topics_at(tenure.ports[1]).items() if name in {"t0", "t19", "auto"}} == {
        "t0": 2,
        "t19": 2,
        "auto": 1,
    }


def test_a_topic_grows_and_goes_at_all(tenure: Tenure) -> None:
    """All workers know a larger or deleted topic before the answer; only the leading worker takes its records."""
    for number, port in enumerate(tenure.ports * 3):
        name = f"t{number}"
        ask(port, topic_request(name), 5)
        grown = ask(port, grow_request({name: 4}, TIMEOUT_MS), 3)
        assert grown.results[0].error_code == ErrorCode.NONE
        assert [topics_at(other)[name] for other in tenure.ports] == [4, 4]
        answers = {other: produce_to_all(other, name, 4) for other in tenure.ports}
        refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert all(sorted(pair) == [0, refused] for pair in zip(*answers.values(), strict=True))
        gone = ask(port, DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS), 3)
        assert gone.responses[0].error_code == ErrorCode.NONE
        assert all(name not in topics_at(other) for other in tenure.ports)
        wait_until(lambda name=name: not list(tenure.data_dir.glob(f"{name}-*")), "folders", WITHIN_S)  # type: ignore[misc]


def produce_to_all(port: int, topic: str, count: int) -> list[int]:
    """Produce a record to each of that many partitions; returns the error codes."""
    answer = ask(port, produce_request({(topic, index): batch([(b"k", b"v", 1)]) for index in range(count)}), 9)
    return [each.error_code for each in answer.responses[0].partition_responses]


def test_a_topic_is_created_once(tenure: Tenure) -> None:
    """If two workers are asked for one name at the same time, one creates it and the other answers that it exists."""
    names = [f"t{number}" for number in range(100)]
    with Connection(tenure.ports[0]) as first, Connection(tenure.ports[1]) as second:
        for name in names:
            for connection in (first, second):
                connection.send(topic_request(name, f"{name}-{'first' if connection is first else 'second'}"), 5)
        outcomes = {}
        for name in names:
            answers = [connection.receive() for connection in (first, second)]
            outcomes[name] = sorted(answer.topics[0].error_code for answer in answers)
            assert [answer.topics[1].error_code for answer in answers] == [0, 0]
    assert set(map(tuple, outcomes.values())) == {(ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)}
    assert topics_at(tenure.ports[0]) == topics_at(tenure.ports[1])
    assert len(topics_at(tenure.ports[0])) == 3 * len(names) + 3


def test_a_topic_that_can_not_be_written_is_nowhere(tenure: Tenure) -> None:
    """A topic that can't be written exists at no worker, and a log line says so; after a repair it can be created."""
    in_the_way = tenure.data_dir / "topics.json.new"
    in_the_way.mkdir()
    failed = ask(tenure.ports[1], topic_request("a"), 5)
    assert failed.topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert all("a" not in topics_at(port) for port in tenure.ports)
    tenure.wait_for_event("topics_not_written")
    in_the_way.rmdir()
    created = ask(tenure.ports[1], topic_request("a"), 5)
    assert created.topics[0].error_code == ErrorCode.NONE


def test_two_workers_change_one_topic(tenure: Tenure) -> None:
    """Two workers' changes to one topic both hold, in either order."""
    hanging = tenure.worker_pid(1)
    for number in range(8):
        name = f"t{number}"
        ask(tenure.ports[0], topic_request(name), 5)
        with Connection(tenure.ports[0]) as grower, Connection(tenure.ports[1]) as setter:
            os.kill(hanging, signal.SIGSTOP)
            grower.send(grow_request({name: 4}, TIMEOUT_MS), 3)
            setter.send(configs_request(2, [name], {"retention.ms": "7"}), 1)
            wait_until(lambda: topics_at(tenure.ports[0])[name] == 4, "growth", WITHIN_S)  # noqa: B023
            os.kill(hanging, signal.SIGCONT)
            assert grower.receive().results[0].error_code == ErrorCode.NONE
            assert setter.receive().responses[0].error_code == ErrorCode.NONE
        assert [topics_at(port)[name] for port in tenure.ports] == [4, 4]
    saved = [json.loads(line) for line in (tenure.data_dir / "topics.json").read_text().splitlines()[1:]]
    found = {topic["name"]: (topic["partition_count"], topic["configs"]) for topic in saved}
    assert all(found[f"t{number}"] == (4, {"retention.ms": "7"}) for number in range(8))


def test_changed_settings_of_brokers_are_known_to_all(tenure: Tenure) -> None:
    """All workers have a change for all nodes, one worker has its own; also a new worker, and after a restart."""

    def changed() -> list[dict[str, str | None]]:
        return [
            {each.name: each.value for each in broker_configs(port, node_id) if each.config_source in {2, 3}}
            for node_id, port in enumerate(tenure.ports)
        ]

    for node_id, name, value in ((0, "", "7"), (1, "1", "8")):
        set_config(tenure.ports[node_id], name, "log.segment.bytes", f"{value}000")
    set_config(tenure.ports[1], "", "message.max.bytes", "10")
    meant = [{"log.segment.bytes": f"{value}000", "message.max.bytes": "10"} for value in "78"]
    assert changed() == meant
    os.kill(tenure.worker_pid(1), signal.SIGKILL)
    tenure.wait_for_event("worker_back")
    assert changed() == meant
    assert tenure.stop() == 0
    start_elsewhere(tenure)
    assert changed() == meant
    codes = [code for port in tenure.ports for code in produce_to_all(port, "orders", 3)]
    assert set(codes) == {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NOT_LEADER_OR_FOLLOWER}


def broker_configs(port: int, node_id: int) -> list[DescribeConfigsResponse.DescribeConfigsResourceResult]:
    """Return all settings of a node."""
    answer: DescribeConfigsResponse = ask(port, describe_configs_request(4, str(node_id)), 4)
    return answer.results[0].configs


def set_config(port: int, name: str, setting: str, value: str) -> None:
    """Change a setting of a node, or of all nodes (name "")."""
    answer = ask(port, configs_request(4, [name], {setting: value}), 1)
    assert answer.responses[0].error_code == ErrorCode.NONE


def test_folders_of_a_deleted_topic_go_without_their_leader(tenure: Tenure) -> None:
    """The folders of a deleted topic are removed, although their leader died before it released them."""
    name = "gone"
    ask(tenure.ports[0], topic_request(name), 5)
    for port in tenure.ports:
        produce_to_all(port, name, 2)
    assert len(list(tenure.data_dir.glob(f"{name}-*"))) == 2
    hanging = tenure.worker_pid(1)
    os.kill(hanging, signal.SIGSTOP)
    with Connection(tenure.ports[0]) as connection:
        connection.send(DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS), 3)
        wait_until(lambda: name not in topics_at(tenure.ports[0]), "deletion", WITHIN_S)
        os.kill(hanging, signal.SIGKILL)
        assert connection.receive().responses[0].error_code == ErrorCode.NONE
    assert not list(tenure.data_dir.glob(f"{name}-*"))


def test_folders_of_no_topic_are_set_aside_at_the_start(tenure: Tenure) -> None:
    """The start sets aside folders without a topic, as a crash may leave them, and names each."""
    ask(tenure.ports[0], topic_request("left"), 5)
    for port in tenure.ports:
        produce_to_all(port, "left", 2)
    assert tenure.stop() == 0
    (tenure.data_dir / "left-0").rename(tenure.data_dir / "nobody-0")
    mark = tenure.mark()
    start_elsewhere(tenure)
    (event,) = tenure.events("topic_folder_stray", since=mark)
    assert event["folder"].endswith("nobody-0")
    assert event["stray"].endswith("-stray")
    assert (tenure.data_dir / "left-1").exists()


# The death of a worker.


def test_a_worker_that_died_is_back_with_all_it_had(tenure: Tenure) -> None:
    """A worker that died is back on its node and address with its members and topics; the other worker goes on.

    Clients that come meanwhile wait.
    """
    members = {group: seat(port, group) for group, port in zip((ON_0, ON_1), tenure.ports, strict=True)}
    ask(tenure.ports[0], topic_request("fresh"), 5)
    killed, other = tenure.worker_pid(1), tenure.worker_pid(0)
    mark = tenure.mark()
    with Connection(tenure.ports[0]) as stays, Connection(tenure.ports[1]) as cut:
        request = heartbeat_request(ON_0, members[ON_0], "i")
        assert stays.ask(request, 4).error_code == ErrorCode.NONE
        assert cut.ask(heartbeat_request(ON_1, members[ON_1], "i"), 4).error_code == ErrorCode.NONE
        os.kill(killed, signal.SIGKILL)
        tenure.wait_for_event("worker_ended", since=mark)
        answer = beat(tenure.ports[1], ON_1, members[ON_1])
        assert answer == ErrorCode.NONE
        assert stays.ask(request, 4).error_code == ErrorCode.NONE
    (ended,) = tenure.events("worker_ended", since=mark)
    assert (ended["node"], ended["pid"], ended["exit_code"], ended["pause_ms"]) == (1, killed, -signal.SIGKILL, 0)
    tenure.wait_for_event("worker_back", since=mark)
    assert tenure.worker_pid(1) != killed
    assert tenure.worker_pid(0) == other
    assert "fresh" in topics_at(tenure.ports[1])
    assert [event["group"] for event in tenure.events("group_loaded", since=mark)] == [ON_1]
    assert tenure.count("rebalance_started", since=mark) == 0
    created = ask(tenure.ports[1], topic_request("later"), 5)
    assert created.topics[0].error_code == ErrorCode.NONE
    assert "later" in topics_at(tenure.ports[0])


def test_a_worker_that_dies_again_waits_longer(tenure: Tenure) -> None:
    """The pause before the next start grows with each death, and the log line has it; a signal counts as well."""
    os.kill(tenure.worker_pid(0), signal.SIGTERM)
    tenure.wait_for_event("worker_back")
    os.kill(tenure.worker_pid(0), signal.SIGKILL)
    ended = tenure.wait_for_event("worker_ended", count=2)
    assert [(event["exit_code"], event["failures"], event["pause_ms"]) for event in ended] == [
        (0, 1, 0),
        (-9, 2, 1_000),
    ]
    tenure.wait_for_event("worker_back", count=2)


def test_pauses_grow_up_to_a_limit() -> None:
    """The first start has no pause, the second one waits a second, and each further pause doubles up to a limit."""
    assert [pause_ms(failures) for failures in range(1, 8)] == [0, 1_000, 2_000, 4_000, 8_000, 16_000, PAUSE_MAX_MS]
    assert pause_ms(10**6) == PAUSE_MAX_MS


def test_a_topic_does_not_wait_for_a_worker_that_died(tenure: Tenure) -> None:
    """A worker that hangs holds up a topic's creation; after its death the answer comes, and its successor knows it."""
    hanging = tenure.worker_pid(1)
    os.kill(hanging, signal.SIGSTOP)
    with Connection(tenure.ports[0]) as connection:
        connection.send(topic_request("a"), 5)
        wait_until(lambda: b'"a"' in (tenure.data_dir / "topics.json").read_bytes(), "durable", WITHIN_S)
        assert "orders" in topics_at(tenure.ports[0])  # the worker serves
        assert connection.is_silent()
        os.kill(hanging, signal.SIGKILL)
        assert connection.receive().topics[0].error_code == ErrorCode.NONE
    assert all("a" in topics_at(port) for port in tenure.ports)


def test_an_answer_is_not_for_the_successor_of_who_asked(tenure: Tenure) -> None:
    """The successor of a worker doesn't get its answers, because it asked for nothing or for something else."""
    hanging = tenure.worker_pid(1)
    os.kill(hanging, signal.SIGSTOP)
    with Connection(tenure.ports[0]) as connection:
        connection.send(topic_request("a"), 5)
        wait_until(lambda: b'"a"' in (tenure.data_dir / "topics.json").read_bytes(), "durable", WITHIN_S)
        os.kill(tenure.worker_pid(0), signal.SIGKILL)
        tenure.wait_for_event("worker_back")
    os.kill(hanging, signal.SIGCONT)
    for name in "bc":
        created = ask(tenure.ports[0], topic_request(name), 5)
        assert created.topics[0].error_code == ErrorCode.NONE
    assert tenure.count("worker_ended") == 1
    assert topics_at(tenure.ports[0]) == topics_at(tenure.ports[1])


# The end.


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_all_end_in_order(tmp_path: Path, signal_number: signal.Signals) -> None:
    """All processes end with exit code 0, addresses and folder are free, and acknowledged writes are durable.

    SIGINT goes to every process, as a terminal sends it.
    """
    with supervised(tmp_path) as tenure:
        members = {group: seat(port, group) for group, port in zip((ON_0, ON_1), tenure.ports, strict=True)}
        pids = [tenure.worker_pid(node_id) for node_id in (0, 1)]
        if signal_number is signal.SIGINT:
            os.killpg(tenure.pid, signal_number)
        else:
            tenure.send_signal(signal_number)
        wait_until(lambda: not tenure.running, "end", WITHIN_S)
        assert tenure.stop() == 0
        assert not any(map(is_there, pids))
        assert tenure.count("worker_ended") == 0
        assert tenure.output_path.read_text().count("\n") == 1
        for port in tenure.ports:
            with pytest.raises(ConnectionRefusedError):
                Connection(port)
        start_elsewhere(tenure)
        for group, port in zip((ON_0, ON_1), tenure.ports, strict=True):
            assert beat(port, group, members[group]) == ErrorCode.NONE


def test_a_second_signal_ends_who_does_not_end(tenure: Tenure) -> None:
    """A second signal kills a worker that hangs, without a flush."""
    hanging, other = tenure.worker_pid(0), tenure.worker_pid(1)
    os.kill(hanging, signal.SIGSTOP)
    tenure.send_signal(signal.SIGTERM)
    wait_until_gone([other])
    assert tenure.running
    assert tenure.stop() == 0
    assert not is_there(hanging)


def test_workers_end_with_their_supervisor(tenure: Tenure) -> None:
    """If the supervisor is killed, the workers end in order, and a new server can use the folder."""
    members = {group: seat(port, group) for group, port in zip((ON_0, ON_1), tenure.ports, strict=True)}
    pids = [tenure.worker_pid(node_id) for node_id in (0, 1)]
    os.kill(tenure.pid, signal.SIGKILL)
    wait_until_gone(pids)
    with Tenure(SETTINGS, directory=tenure.directory) as alone:
        for group, joined in members.items():
            assert beat(alone.port, group, joined) == ErrorCode.NONE


def test_the_number_of_workers_may_change(tmp_path: Path) -> None:
    """With another number of workers all groups stay on their partitions."""
    joined: JoinGroupResponse | None = None
    for workers in (1, 3, 2):
        with supervised(tmp_path, workers) as tenure:
            port = tenure.ports[partition_for(ON_1, 6) % workers]
            joined = joined or seat(port, ON_1)
            assert beat(port, ON_1, joined) == ErrorCode.NONE
            assert tenure.stop() == 0


# Reasons for which it doesn't start.


def failing_start(*arguments: str, files_max: int | None = None) -> str:
    """Return the one line of a start that ends with exit code 2."""

    def limit() -> None:
        if files_max is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))

    ended = subprocess.run(
        [*tenure_command(), "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        preexec_fn=limit,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    return ended.stderr.splitlines()[-1]


def test_a_folder_in_use_is_refused_and_named(tenure: Tenure) -> None:
    """A server with any number of workers refuses a folder in use, and names the process id of its supervisor."""
    for workers in ("1", "2"):
        said = failing_start("--listen", "127.0.0.1:0", "--data-dir", str(tenure.data_dir), "--workers", workers)
        assert f"{tenure.data_dir} is in use by another server (process {tenure.pid})" in said
    assert topics_at(tenure.ports[1])


def test_an_address_in_use_is_refused_and_named(tmp_path: Path) -> None:
    """The error names the address in use, of whichever worker."""
    while True:
        with taken_port_behind_a_free_one() as taken:
            port = taken.getsockname()[1]
            said = failing_start("--listen", f"127.0.0.1:{port - 1}", "--data-dir", str(tmp_path), "--workers", "2")
        if f"127.0.0.1:{port - 1}: the address is in use" not in said:  # another test took that one meanwhile
            break
    assert f"127.0.0.1:{port}: the address is in use" in said


def taken_port_behind_a_free_one() -> socket.socket:
    """Return a listening socket whose port only a second worker would use."""
    while True:
        taken = socket.create_server(("127.0.0.1", 0))
        try:
            socket.create_server(("127.0.0.1", taken.getsockname()[1] - 1)).close()
        except OSError:
            taken.close()
        else:
            return taken


def test_what_keeps_a_worker_from_starting_is_said(tmp_path: Path) -> None:
    """The worker that can't start gives the reason, and all processes end."""
    said = failing_start("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--workers", "2", files_max=100)
    assert "100 files" in said


def test_a_worker_that_can_not_be_forked_is_said(tmp_path: Path) -> None:
    """If the system allows no further process, the server says so, and ends those that it started."""
    program = (
        "import errno, os, sys\n"
        "from coordinator.cli.serve import serve\n"
        "fork, forks = os.fork, []\n"
        "def second_fails():\n"
        "    forks.append(1)\n"
        "    if len(forks) > 1:\n"
        "        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))\n"
        "    return fork()\n"
        "os.fork = second_fails\n"
        "serve(sys.argv[1:])\n"
    )
    arguments = ["--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--workers", "2", "--log-format", "json"]
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    *lines, last = ended.stderr.splitlines()
    assert last.endswith(
        "the worker of node 1 could not be forked: Resource temporarily unavailable, before it was ready"
    )
    (pid,) = [event["pid"] for event in map(json.loads, lines) if event["event"] == "worker_started"]
    assert not is_there(pid)


def test_a_worker_more_than_partitions_is_refused(tmp_path: Path) -> None:
    """A server refuses more workers than partitions, because one worker would have none."""
    said = failing_start("--data-dir", str(tmp_path), "--workers", "4", "--set", "offsets.topic.num.partitions=3")
    assert "--workers: 4" in said


# Workers that hang.


@pytest.mark.early
def test_a_worker_that_hangs_is_killed_and_started_again(tmp_path: Path) -> None:
    """Until then the others send no client to it. Its successor serves its groups, whose members keep their seats."""
    settings = {**SETTINGS, "tenure.worker.timeout.ms": 6_000}
    with Tenure(settings, directory=tmp_path, arguments=["--workers", "2"]) as tenure:
        joined = seat(tenure.ports[1], ON_1)
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=[ON_1, ON_0])

        def codes() -> list[int]:
            answer = ask(tenure.ports[0], find, 4)
            return [each.error_code for each in answer.coordinators]

        assert [codes() for _ in range(5)] == [[ErrorCode.NONE] * 2] * 5  # no answer is kept for later
        os.kill(tenure.worker_pid(1), signal.SIGSTOP)
        tenure.wait_for_event("worker_silent")
        wait_until(lambda: codes() == [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE], "silent", WITHIN_S)
        (hung,) = tenure.wait_for_event("worker_hung")
        assert hung["node"] == 1
        tenure.wait_for_event("worker_back")
        wait_until(lambda: codes() == [ErrorCode.NONE] * 2, "answers again", WITHIN_S)
        wait_until(lambda: beat(tenure.ports[1], ON_1, joined) == ErrorCode.NONE, "load", WITHIN_S)
        assert tenure.stop() == 0


def test_changes_of_topics_time_out_while_a_worker_hangs(tenure: Tenure) -> None:
    """The answer comes within the request's timeout; the change itself is durable and is made later."""
    ask(tenure.ports[0], topic_request("old", "grows"), 5)
    hanging = tenure.worker_pid(1)
    os.kill(hanging, signal.SIGSTOP)
    created = ask(tenure.ports[0], topic_request("new", timeout_ms=1_000), 5)
    assert created.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    grown = ask(tenure.ports[0], grow_request({"grows": 4}, 1_000), 3)
    assert grown.results[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    deleted = ask(tenure.ports[0], DeleteTopicsRequest(topic_names=["old"], timeout_ms=1_000), 3)
    assert deleted.responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    os.kill(hanging, signal.SIGCONT)
    expected = {"new": 2, "grows": 4}

    def made() -> bool:
        return all(
            {name: count for name, count in topics_at(port).items() if name in {"old", "new", "grows"}} == expected
            for port in tenure.ports
        )

    wait_until(made, "the changes at both workers", WITHIN_S)
