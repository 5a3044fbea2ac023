"""The server of a test kit: start, stop, kill, topics; what it leaves behind."""

from __future__ import annotations

import asyncio
import io
import os
import tempfile
import threading
from pathlib import Path

import pytest

from coordinator.client.errors import Refused
from coordinator.config import ConfigError, load
from coordinator.log.segments.disk import Disk
from coordinator.loop.clock import LoopClock
from coordinator.server.app import StartFailed
from coordinator.testing import NotRunning, Tenure, assert_no_rebalance
from coordinator.testing.faults import error, kill
from protocol.messages import MetadataRequest
from protocol.records.batch import Record, encode_batch
from schemas.errors import ErrorCode
from tests.support.length import rounds
from tests.support.patience import WITHIN_S
from tests.support.raw import Closed, ask
from tests.support.requests import produce_request
from tests.support.scripted import Member, hang_up, settle
from tests.testing.conftest import Join, port_of

AT_ONCE = rounds(30, 100, 100)
"""Servers that one process runs side by side."""


@pytest.fixture(autouse=True)
def own_folder_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else makes files there."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))


def left_behind() -> tuple[set[str], list[str], list[str]]:
    """Threads, open files and temporary files of this process."""
    files = []
    for path in list(Path("/dev/fd").iterdir()):
        try:
            os.fstat(int(path.name))
        except OSError:
            continue  # that of the listing itself
        files.append(path.name)
    made = [path.name for path in Path(tempfile.gettempdir()).iterdir()]
    return {thread.name for thread in threading.enumerate()}, sorted(files), sorted(made)


def produce(server: Tenure) -> None:
    """Append a record to t-0."""
    records = encode_batch([Record(b"key", b"value", 1)], 0, 0)
    answer = ask(port_of(server), produce_request({("t", 0): records}), 7)
    assert answer.responses[0].partition_responses[0].error_code == 0


def test_nothing_is_left_behind() -> None:
    """After a stop no thread, socket, file or folder remains, records and an open connection included."""
    with Tenure(topics={"t": 1}):
        pass  # what is imported and opened once stays
    before = left_behind()
    with Tenure(topics={"t": 1}, timeout=WITHIN_S) as server:
        settle(Member(port_of(server), "workers", "one", 5))
        server.group("workers").wait_until_stable()
        produce(server)
        assert len(left_behind()[2]) > len(before[2])
        assert left_behind()[0] > before[0]
    hang_up()
    assert left_behind() == before
    server.stop()  # a second one does nothing


def test_a_start_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    """The reason is one line; the thread is gone."""
    before = left_behind()
    (tmp_path / "foreign").write_text("not ours")
    server = Tenure(data_dir=tmp_path)
    with pytest.raises(StartFailed):
        server.start()
    assert not server.is_running
    assert left_behind() == before


@pytest.mark.rounds
def test_many_run_at_once() -> None:
    """Each has its own port, groups and topics; all end."""
    before = left_behind()
    servers = [Tenure(topics={"t": 1}, timeout=WITHIN_S).start() for _ in range(AT_ONCE)]
    assert len({server.bootstrap_servers for server in servers}) == AT_ONCE
    settle(Member(port_of(servers[7]), "workers", "one", 5))
    servers[7].group("workers").wait_until_stable(members=1)
    assert [len(server.groups) for server in servers] == [int(number == 7) for number in range(AT_ONCE)]
    hang_up()
    for server in servers:
        server.stop()
    assert left_behind() == before


def test_a_group_is_back_after_a_kill(tmp_path: Path) -> None:
    """Generation, members and topics are there at the same address, and the history goes on."""
    server = Tenure(topics={"t": 3}, data_dir=tmp_path / "data", timeout=WITHIN_S).start()
    one = Member(port_of(server), "workers", "one", 5, instance="one")
    settle(one)
    group = server.group("workers")
    server.create_topic("later", 2)
    address, seats = server.bootstrap_servers, group.assignment
    server.kill()
    assert not server.is_running
    with pytest.raises(NotRunning):
        group.look()
    assert len(group.rebalances) == 1
    with pytest.raises(AssertionError, match="rebalanced once, expected none"):
        assert_no_rebalance(group, 0)
    server.start()
    assert server.bootstrap_servers == address
    assert (group.state, group.generation, group.assignment) == ("Stable", 1, seats)
    with group.no_rebalance(), group.nothing_moved():
        again = Member(port_of(server), "workers", "one", 5, instance="one")
        again.send_join()
        assert again.receive_join().error_code == 0
    assert (len(group.rejoins), len(group.restarts)) == (1, 0)
    answer = ask(port_of(server), MetadataRequest(topics=None), 4)
    assert {each.name for each in answer.topics} >= {"t", "later"}
    hang_up()
    server.stop()


def test_a_kill_answers_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection of a request whose record is under way breaks, before the disk has answered."""
    disk_answers = threading.Event()
    disk_answers.set()
    sync = Disk.fdatasync

    def slow(disk: Disk, descriptor: int) -> None:
        assert disk_answers.wait(WITHIN_S)
        sync(disk, descriptor)

    monkeypatch.setattr(Disk, "fdatasync", slow)
    with Tenure(data_dir=tmp_path / "data", timeout=WITHIN_S) as server:
        one = Member(port_of(server), "workers", "one", 5, instance="one")
        one.send_join()
        assert one.receive_join().error_code == 0
        disk_answers.clear()
        one.send_sync({one.member_id: "one"})
        while server.requests.count("SyncGroup") == 0:
            server.flush()
        killing = threading.Thread(target=server.kill)
        killing.start()
        with pytest.raises((ConnectionResetError, Closed)):
            one.connection.receive_frame()
        disk_answers.set()
        killing.join()
        server.start()
        assert server.group("workers").state in {"Stable", "Dead"}
    hang_up()


def test_a_reset_makes_all_as_new(server: Tenure) -> None:
    """Groups, topics, time, history and counts are gone; address, settings and configured topics stay."""
    address = server.bootstrap_servers
    settle(Member(port_of(server), "workers", "one", 5))
    server.create_topic("later")
    server.faults.add(error(ErrorCode.NOT_COORDINATOR, "Heartbeat"))
    server.freeze()
    server.reset()
    assert server.bootstrap_servers == address
    assert (server.groups, len(server.history), list(server.faults)) == ([], 0, [])
    assert server.requests.count() == 0
    assert not server.do(lambda control: control.clock.is_frozen)
    assert server.group("workers").state == "Dead"
    answer = ask(port_of(server), MetadataRequest(topics=None), 4)
    assert {each.name for each in answer.topics if not each.is_internal} == {"t"}
    hang_up()


def test_the_same_seed_makes_the_same_ids_after_a_reset() -> None:
    """Member ids don't depend on what was before the reset."""
    found = []
    with Tenure(seed=7, timeout=WITHIN_S) as server:
        for _ in range(2):
            settle(Member(port_of(server), "workers", "one", 5))
            found.append([member.member_id for member in server.group("workers").members])
            hang_up()
            server.reset()
    assert len(found[0]) == 1
    assert found[0] == found[1]


def test_a_reset_leaves_a_folder_of_others_alone(tmp_path: Path) -> None:
    """A folder that no server with control made is not emptied; the error says so, and a start finds all in it."""
    with Tenure(data_dir=tmp_path / "data", timeout=WITHIN_S) as server:
        settle(Member(port_of(server), "workers", "one", 5))
        hang_up()
        with pytest.raises(ConfigError, match="no server with control made"):
            server.reset()
        assert not server.is_running
        server.start()
        assert server.group("workers").generation == 1


def test_a_whole_configuration_can_be_handed_in() -> None:
    """Several listeners keep their ports over a reset; clients get the first one's advertised address; lines go on."""
    sets = [
        "listeners=A://127.0.0.1:0,B://127.0.0.1:0",
        "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
        "advertised.listeners=A://tenure.example:9092",
        "tenure.events.enable=false",
    ]
    lines = io.StringIO()
    with Tenure(config=load(sets=sets)[0], log=lines, timeout=WITHIN_S) as server:
        addresses = server.addresses
        assert len({port for _, port in addresses} - {0}) == 2
        assert server.bootstrap_servers == "tenure.example:9092"
        server.reset()
        assert server.addresses == addresses
    assert "Finished loading" in lines.getvalue()
    assert lines.getvalue() == server.log


def test_a_stop_ends_the_wait_for_a_kill(tmp_path: Path) -> None:
    """Nobody waits for the kill of a stopped server until the timeout."""
    server = Tenure(data_dir=tmp_path / "data").start()
    server.stop()
    with pytest.raises(AssertionError, match="the server was stopped, and nothing had killed it"):
        server.wait_until_killed()


def test_a_kill_needs_a_data_folder(server: Tenure) -> None:
    """Without one nothing would be left."""
    with pytest.raises(ValueError, match="data_dir"):
        server.kill()
    assert server.is_running


def test_settings_have_kafkas_names_and_mistakes_are_named() -> None:
    """A test's settings win over those of the kit, and a wrong one says what is wrong before the start."""
    with Tenure(settings={"group.max.size": 1, "group.initial.rebalance.delay.ms": 0}) as server:
        settle(Member(port_of(server), "workers", "one", 5))
        other = Member(port_of(server), "workers", "other", 5, instance="other")
        other.send_join()
        assert other.receive_join().error_code == 81
    hang_up()
    with pytest.raises(ConfigError, match=r"group\.max\.sise: no such setting.*group\.max\.size"):
        Tenure(settings={"group.max.sise": 1})
    for name, instead in {"listeners": "bootstrap_servers", "log.dirs": "data_dir", "tenure.topics": "topics"}.items():
        with pytest.raises(ValueError, match=instead):
            Tenure(settings={name: "x"})


def test_topics_can_be_created_while_it_runs(server: Tenure) -> None:
    """A second topic of the same name is refused with Kafka's error, and none of it counts as a client's request."""
    server.create_topic("more", partitions=4)
    with pytest.raises(Refused, match="TOPIC_ALREADY_EXISTS"):
        server.create_topic("more")
    assert server.requests.count() == 0


def test_before_the_start_there_is_no_address() -> None:
    """What needs the server says that it doesn't run."""
    server = Tenure()
    with pytest.raises(NotRunning, match="never started"):
        _ = server.bootstrap_servers
    with pytest.raises(NotRunning, match="start"):
        server.group("workers").look()
    assert server.groups == [server.group("workers")]


def test_a_clock_can_be_handed_in() -> None:
    """The server's clock is made of its loop, at each start."""
    loops = []

    def clock(loop: asyncio.AbstractEventLoop) -> LoopClock:
        loops.append(loop)
        return LoopClock(loop)

    server = Tenure(clock=clock)
    for _ in range(2):
        server.start()
        server.stop()
    assert len(set(map(id, loops))) == 2


def test_log_lines_are_kept(server: Tenure, member: Join) -> None:
    """They have the words of a Kafka broker."""
    settle(member("one"))
    assert "Preparing to rebalance group workers in state PreparingRebalance" in server.log
    assert "Stabilized group workers generation 1" in server.log


async def test_an_async_test_waits_beside_its_loop(server: Tenure) -> None:
    """Looks are short; waits run on another thread."""
    waiting = asyncio.create_task(asyncio.to_thread(server.group("workers").wait_until_stable, 1))
    one = Member(port_of(server), "workers", "one", 5)
    await asyncio.to_thread(settle, one)
    group = await waiting
    assert group.state == "Stable"
    hang_up()


# Time.


def test_an_hour_passes_at_once(server: Tenure, member: Join) -> None:
    """Members whose clients are alive stay, one that the test names expires, and the others go on."""
    one, other = member("one", instance="one"), member("other", instance="other")
    settle(one, other)
    group = server.group("workers")
    with group.no_rebalance():
        server.advance(3_600)
        assert len(group.members) == 2
    before = group.rebalances
    server.advance(3_600, [("workers", "other")])
    (rebalance,) = group.rebalances[len(before) :]
    assert rebalance.cause == "member_expired"
    with pytest.raises(LookupError, match="no member nobody: it has one"):
        server.advance(1, [("workers", "nobody")])


def test_time_stands_still_and_goes_on_over_a_kill(tmp_path: Path) -> None:
    """A server that starts again has the time of the one before it, frozen or not."""
    with Tenure(data_dir=tmp_path / "data", timeout=WITHIN_S) as server:
        server.freeze()
        server.advance(1.5)
        frozen_ms = server.do(lambda control: control.clock.ms())
        server.kill()
        server.start()
        assert server.do(lambda control: control.clock.ms()) == frozen_ms
        server.advance(3_600)
        server.thaw()
        server.kill()
        server.start()
        assert server.do(lambda control: control.clock.ms() - control.clock.real.ms()) > 3_500_000


def test_a_member_is_expired_silenced_and_heard_again(server: Tenure, member: Join) -> None:
    """Each by its instance id; a silenced member expires after its session timeout although its client is alive."""
    one, other = member("one", instance="one"), member("other", instance="other")
    settle(one, other)
    group = server.group("workers")
    group.silence("other")
    group.hear("other")
    server.advance(3_600)
    assert len(group.members) == 2
    group.silence("other")
    assert other.heartbeat() == 0
    server.advance(3_600)
    group.wait_until(members=1)
    group.expire("one")
    group.wait_until(state="Empty")
    assert group.rebalances[-1].causes == ("member_expired",) * 2


# Faults.


def test_a_planned_fault_happens(server: Tenure, member: Join) -> None:
    """By text or as a value; a fault planned before the start counts too."""
    (refused,) = server.faults.add("Heartbeat client_id=one nth=2 -> error REBALANCE_IN_PROGRESS")
    one = member("one")
    settle(one)
    assert [one.heartbeat() for _ in range(3)] == [0, 27, 0]
    assert (refused.seen, refused.fired) == (2, 1)
    server.faults.clear()
    assert list(server.faults) == []


def test_a_fault_outlives_the_server(tmp_path: Path) -> None:
    """It is planned before the start, and still there after a kill."""
    server = Tenure(data_dir=tmp_path / "data", timeout=WITHIN_S)
    server.faults.add(error(ErrorCode.COORDINATOR_NOT_AVAILABLE, "JoinGroup", times=2))
    for _ in range(2):
        server.start()
        one = Member(port_of(server), "workers", "one", 5, instance="one")
        one.send_join()
        assert one.receive_join().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        server.kill()
    hang_up()
    assert server.faults.never_fired == []


def test_a_fault_kills_the_server_between_a_record_and_its_answer(tmp_path: Path) -> None:
    """The member gets no answer, and the server that comes back has its seat."""
    with Tenure(data_dir=tmp_path / "data", timeout=WITHIN_S) as server:
        server.faults.add(kill("SyncGroup"))
        with pytest.raises(AssertionError, match="nothing killed the server within 0 s; planned:\nSyncGroup -> kill"):
            server.wait_until_killed(timeout=0)
        one = Member(port_of(server), "workers", "one", 5, instance="one")
        one.send_join()
        assert one.receive_join().error_code == 0
        one.send_sync({one.member_id: "one"})
        with pytest.raises((ConnectionResetError, Closed)):
            one.connection.receive_frame()
        server.wait_until_killed()
        assert not server.is_running
        server.start()
        assert server.group("workers").state == "Stable"
    hang_up()


# Scripted members.


def test_a_group_is_filled_with_members_without_clients(server: Tenure) -> None:
    """They join, have seats, and end with the server."""
    members = server.group("workers").fill(5, topics=["t"], client_id="worker")
    generation = members.wait_until_seated(within_s=WITHIN_S)
    group = server.group("workers").wait_until_stable(members=5)
    assert group.generation == generation
    assert sorted(group.assignment) == [f"worker-{index}" for index in range(5)]
    server.stop()
    with pytest.raises(RuntimeError, match="stopped"):
        members.restart(0)


def test_after_a_test_all_that_it_planned_is_taken_back(server: Tenure) -> None:
    """Faults, frozen time, silenced and scripted members; groups stay."""
    members = server.group("workers").fill(1, client_id="worker")
    members.wait_until_seated(within_s=WITHIN_S)
    server.faults.add("JoinGroup -> disconnect")
    server.freeze()
    server.group("workers").silence("worker-0")
    server.end_test()
    assert list(server.faults) == []
    assert not server.do(lambda control: control.clock.is_frozen)
    assert server.group("workers").generation == 1
    with pytest.raises(RuntimeError, match="stopped"):
        members.leave(0)
    server.advance(40)
    assert len(server.group("workers").members) == 1


def test_a_seed_repeats_member_ids() -> None:
    """Two runs with one seed give the same ids, another seed gives others."""

    def member_id(seed: int) -> str:
        with Tenure(seed=seed) as server:
            one = Member(port_of(server), "workers", "one", 5)
            settle(one)
            hang_up()
            return one.member_id

    first, again, other = member_id(7), member_id(7), member_id(8)
    assert first == again != other
