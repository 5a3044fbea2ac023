"""`tenure doctor`: usage, exit codes and forms. Its findings: tests/story/test_diagnosis.py, test_explain.py."""

from __future__ import annotations

import re
import resource
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from coordinator.cli.doctor import _together
from coordinator.client.offsets_log import LIMITS
from coordinator.story import diagnosis
from coordinator.story.cluster_diagnosis import UNAVAILABLE_ADVICE, unavailable
from coordinator.text import NAMED_MAX, time_text
from protocol.records.batch import Record, encode_batch
from schemas.errors import ErrorCode
from tests.cli.conftest import MakeGroup, Ran, Run, at, make_app, run_app, run_out_of_time
from tests.support.patience import WITHIN_S
from tests.support.raw import Connection
from tests.support.requests import commit_request, produce_request
from tests.support.scripted import OPENED, STAYS_MS, Member, hang_up, settle
from tests.support.tenure import Tenure, wait_until
from tests.support.topics import make_topics


def served() -> Iterator[Tenure]:
    """Yield a server whose empty groups wait a moment for further members."""
    with Tenure({"group.initial.rebalance.delay.ms": "300"}) as tenure:
        yield tenure
        hang_up()


@pytest.fixture(scope="module")
def server() -> Iterator[Tenure]:
    """A server; each test has a group of its own on it."""
    yield from served()


def doctor(server: Tenure, *arguments: str) -> Ran:
    """Run the doctor against the server."""
    return run_app(make_app("doctor"), "doctor", *arguments, *at(server.bootstrap))


def test_a_group_or_all_of_them() -> None:
    """The doctor takes a group or --all; an unknown group is exit code 3, and --all may find no group."""
    with Tenure() as server:
        assert doctor(server).code == doctor(server, "g", "--all").code == 2
        ran = doctor(server, "g")
        assert (ran.code, ran.err) == (3, "tenure: no such group, and no events of one: g\n")
        assert (doctor(server, "--all").code, doctor(server, "--all").out) == (0, "0 groups looked at: nothing found\n")
        assert doctor(server, "--all", "--output", "json").json == []


@pytest.mark.early
def test_a_member_that_stands_still_for_too_short_to_tell(server: Tenure) -> None:
    """A few records that wait may be read in a moment, so the doctor doesn't say that all is well."""
    name = f"g-{uuid.uuid4().hex[:8]}"
    make_topics(server.bootstrap, {name: 1})
    base: dict[str, Any] = {"bootstrap.servers": server.bootstrap, "log_level": 0}
    producer = Producer(base)
    for _ in range(3):
        producer.produce(name, b"x")
    assert producer.flush(WITHIN_S) == 0
    consumer = Consumer(base | {"group.id": name, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    try:
        consumer.subscribe([name])
        message = wait_until(lambda: consumer.poll(0.1), "a record", WITHIN_S)
        consumer.commit(message=message, asynchronous=False)
        ran = doctor(server, name)
        assert ran.code == 0
    finally:
        consumer.close()
    assert f"nothing was committed of {name}-0 at 1, and 2 records wait. Run the doctor again" in ran.out
    assert f"{name}: too early to tell whether it is stuck: in 1" in ran.out


@pytest.mark.early
def test_a_damaged_partition_sends_to_the_page_about_it() -> None:
    """The doctor has file, position and page; each other command about the group names the doctor."""
    with Tenure({"offsets.topic.num.partitions": "1"}) as server:
        for group in ("g", "h"):
            settle(Member(server.port, group, "one", 9))
        hang_up()
        server.stop()
        (segment,) = server.data_dir.glob("__consumer_offsets-0/*.log")
        damaged = bytearray(segment.read_bytes())
        damaged[70] ^= 1
        segment.write_bytes(damaged)
        server.start()
        where = ("--bootstrap-server", server.bootstrap)
        ran, _ = run_out_of_time(make_app(""), 1, "doctor", "g", *where)
        assert ran.code == 1
        assert segment.name in ran.out
        assert "stop the server and repair it (docs/run/disk-trouble.md#a-partition-is-refused)" in ran.out
        hint = "`tenure doctor GROUP` finds out why"
        for command in ("groups describe g", "groups wait g", "explain g"):
            ran, _ = run_out_of_time(make_app(""), 1, *command.split(), *where, until=lambda ran: hint in ran.err)
            assert ran.code != 0, command


@pytest.mark.early
def test_a_full_disk_is_found() -> None:
    """A disk that is full for the records of topics is an error with names and the reason, until a write works again.

    The server logs it, counts each failed write, the first one too, and isn't ready meanwhile.
    """

    def produce(connection: Connection) -> int:
        batch = encode_batch([Record(b"", bytes(20_000), time.time_ns() // 1_000_000)], 0, 0)
        connection.send(produce_request({("t", 0): batch}), 9)
        answer: Any = connection.receive()
        return int(answer.responses[0].partition_responses[0].error_code)

    def commit(connection: Connection) -> int:
        offsets = {("t", index): 1 for index in range(10)}
        request = commit_request("g", offsets, member.generation, member.member_id, metadata="m" * 4_000)
        connection.send(request, 7)
        answer: Any = connection.receive()
        return int(answer.topics[0].partitions[0].error_code)

    def asked(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(url + path, timeout=WITHIN_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def failures() -> float:
        sample = 'tenure_log_failures_total{log="topics"} '
        (found,) = [line for line in asked("metrics")[1].splitlines() if line.startswith(sample)]
        return float(found.removeprefix(sample))

    with Tenure({"tenure.topics": "t:10", "tenure.http": "127.0.0.1:0"}) as server:
        (url,) = [line["url"] for line in server.events("http_listening")]
        member = Member(server.port, "g", "one", 9)
        settle(member)
        assert (doctor(server, "--all").code, failures()) == (0, 0)
        connection = Connection(server.port)
        OPENED.append(connection)
        assert produce(connection) == ErrorCode.NONE
        before = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
        try:
            # No file may grow beyond 30 kB: for the topic's log that is a full disk.
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (30_000, before[1]))
            for number in (1, 2):
                assert produce(connection) != ErrorCode.NONE
                assert failures() == number
            assert asked("readyz") == (503, "1 topic partition can't be written, see the log\n")
            for arguments in (["--all"], ["g"]):
                ran = doctor(server, *arguments)
                assert ran.code == 1
                assert re.match(
                    "the server: error: the log of t-0 can't be used, for .*: File too large\n"
                    "    .*see what the disk lacks",
                    ran.out,
                )
                assert ran.out.splitlines()[-1] == "1 group looked at: 1 error"
            (found,) = doctor(server, "--all", "--output", "json").json
            assert (found["kind"], found["group_id"]) == ("log_fails", None)
            (line,) = server.events("topic_partition_unavailable")
            assert (line["level"], line["reason"]) == ("error", "File too large")
            assert commit(connection) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            findings = doctor(server, "--all", "--output", "json").json
            (found,) = [each for each in findings if each["kind"] == "log_fails"]
            assert re.search("the log of __consumer_offsets-[0-9]+, t-0 can't be used", found["found"])
        finally:
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, before)
        assert produce(connection) == ErrorCode.NONE
        wait_until(lambda: commit(connection) == ErrorCode.NONE, "the group's log works", WITHIN_S)
        # The member's assignment is empty, which is a notice by this time.
        findings = doctor(server, "--all", "--output", "json").json
        (found,) = [each for each in findings if each["severity"] == "error"]
        assert (found["kind"], found["group_id"]) == ("writes_failed", "g")
        assert asked("readyz") == (200, "ok\n")
        hang_up()


def test_notices_are_no_failure(server: Tenure) -> None:
    """Each line has its severity, the last line has totals; notices alone give exit code 0."""
    group = "notices"
    a = Member(server.port, group, "old", 5)
    settle(a)
    told = wait_until(lambda: doctor(server, group, "--output", "json").json or None, "the join is told", WITHIN_S)
    keys = ["severity", "kind", "group_id", "found", "advice", "last_at_ms", "times"]
    assert [(list(each), each["severity"], each["kind"]) for each in told] == [
        (keys, "notice", "client_without_reason")
    ]
    ran = doctor(server, group)
    assert (ran.code, ran.err) == (0, "")
    first, advice, summary = ran.out.splitlines()
    assert first.startswith("notices: notice: can't say why they join")
    assert advice == "    nothing needs to be done: causes of theirs are inferred"
    assert summary == "1 group looked at: 1 notice"


@pytest.fixture
def own_server() -> Iterator[Tenure]:
    """A server without the groups of other tests: a member of theirs may stand still for long enough to be an error."""
    yield from served()


def test_the_worst_comes_first(own_server: Tenure) -> None:
    """With --all, the worst finding comes first, and one error is enough for exit code 1."""
    server = own_server
    one = Member(server.port, "ahead", "one", 5, instance="seat")
    settle(one)
    settle(Member(server.port, "another", "one", 5))
    settle(Member(server.port, "conflict", "one", 5))
    other = Member(server.port, "ahead", "other", 5, instance="seat")
    other.send_join()
    assert other.receive_join().error_code == ErrorCode.NONE
    assert one.heartbeat() == ErrorCode.FENCED_INSTANCE_ID

    def all_told() -> Ran | None:
        ran = doctor(server, "--all")
        return ran if "ahead: error: two programs" in ran.out and "another, conflict" in ran.out else None

    ran = wait_until(all_told, "all is told", WITHIN_S)
    assert ran.code == 1
    lines = [line for line in ran.out.splitlines() if not line.startswith(" ")]
    (fenced,) = (each for each in doctor(server, "--all", "--output", "json").json if each["severity"] == "error")
    assert lines[0].endswith(f" (last at {time_text(fenced['last_at_ms'])})")
    said = [line.split(": ")[1] for line in lines[:-1]]
    assert said == ["error"] + ["notice"] * (len(said) - 1)
    found = doctor(server, "--all", "--output", "json").json
    assert lines[-1].endswith(f"groups looked at: 1 error, {len(found) - 1} notices")
    old = [each["group_id"] for each in found if each["kind"] == "client_without_reason"]
    assert {"another", "conflict"} <= set(old)
    text = "clients can't say why they join (JoinGroup before version 8)"
    assert lines[-2] == f"{len(old)} groups: notice: {text}: {', '.join(old)}"


def test_a_group_is_named_also_after_its_members_returned(server: Tenure) -> None:
    """A return shows the client's version as a rebalance does: a group whose members all restarted isn't left out."""
    for group in ("stayed", "restarted"):
        settle(Member(server.port, group, "one", 5, instance="seat"))
    again = Member(server.port, "restarted", "one", 5, instance="seat")
    again.send_join()
    assert again.receive_join().error_code == ErrorCode.NONE

    def named() -> set[str]:
        found = doctor(server, "--all", "--output", "json").json
        return {each["group_id"] for each in found if each["kind"] == "client_without_reason"}

    assert wait_until(lambda: {"stayed", "restarted"} <= named(), "both groups are named", WITHIN_S)


def test_how_often_is_said_once(server: Tenure) -> None:
    """The text of some findings has the number of times; then the end of the line doesn't repeat it."""
    group = "comes back"
    stays = Member(server.port, group, "stays", 9)
    settle(stays)
    for _ in range(2):
        comes = Member(server.port, group, "comes", 9)
        comes.send_join()
        settle(stays, comes)
        comes.leave()
        settle(stays)
    comes = Member(server.port, group, "comes", 9)
    comes.send_join()
    settle(stays, comes)
    ran = wait_until(
        lambda: said if "came back" in (said := doctor(server, group)).out else None, "the returns are told", WITHIN_S
    )
    (line,) = [line for line in ran.out.splitlines() if "came back" in line]
    assert re.search(r": comes at 127.0.0.1 2 times\. Of this came 4 of 6 [^(]* \(last at [^)]*\)$", line), line


def test_who_has_not_rejoined_is_named(server: Tenure, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the group waits, a missing member is a notice at first, and later a problem."""
    group = "waits"
    a, b = Member(server.port, group, "a", 9), Member(server.port, group, "b", 9, instance="seat")
    settle(a, b)
    a.send_join()
    assert b.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    for awaited_ms, code, severity in ((STAYS_MS, 0, "notice"), (0, 1, "error")):
        monkeypatch.setattr(diagnosis, "AWAITED_MS", awaited_ms)
        ran = doctor(server, group)
        assert ran.code == code
        assert re.search(
            rf"waits: {severity}: the group has waited \d+ s for seat \(b at 127.0.0.1\) to rejoin", ran.out
        )


def test_the_newest_entries_alone(server: Tenure) -> None:
    """With --last, older entries don't count; entries are counted as in `explain`."""
    group = "newest"
    one = Member(server.port, group, "one", 5, instance="seat")
    settle(one)
    other = Member(server.port, group, "other", 9, instance="seat")
    other.send_join()
    assert other.receive_join().error_code == ErrorCode.NONE
    assert one.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    wait_until(lambda: "two programs" in doctor(server, group).out, "the fencing is told", WITHIN_S)
    again = Member(server.port, group, "other", 9, instance="seat")
    again.send_join()
    assert again.receive_join().error_code == ErrorCode.NONE
    wait_until(lambda: doctor(server, group, "--last", "1").code == 0, "the restart is told", WITHIN_S)
    assert doctor(server, group, "--last", "2").code == doctor(server, group).code == 1
    assert doctor(server, group, "--last", "0").code == 2


def test_a_server_without_events() -> None:
    """The doctor reads the groups' log, and says what that doesn't tell."""
    with Tenure({"tenure.events.enable": "false", "group.initial.rebalance.delay.ms": "0"}) as server:
        settle(Member(server.port, "g", "old", 5))
        ran = doctor(server, "g")
        assert (ran.code, ran.out) == (0, "1 group looked at: nothing found\n")
        assert ran.err == f"tenure: {LIMITS}\n"
        ran = doctor(server, "nobody-made-this-group")
        assert (ran.code, ran.out) == (3, "")


def test_groups_of_any_cluster_are_looked_at(bootstrap: str, run: Run, make_group: MakeGroup) -> None:
    """The doctor works on Apache Kafka too: for a healthy group, one that rebalances, and an unknown one."""
    group = make_group(["a", "b"])
    app = make_app("doctor")
    ran = run(app, "doctor", group)
    assert (ran.code, ran.out.splitlines()[-1].split(":")[0]) == (0, "1 group looked at")
    is_ours = LIMITS not in ran.err
    assert is_ours is (run(make_app("explain"), "explain", group, "--output", "json").json["inferred"] is False)
    ran = run(app, "doctor", "nobody-made-this-group")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.splitlines()[-1] == "tenure: no such group, and no events of one: nobody-made-this-group"
    waiting = [Member(int(bootstrap.rpartition(":")[2]), group, name, 9, instance=name) for name in ("a", "c")]
    waiting[1].send_join()
    found = wait_until(lambda: rebalancing(run, group), "it rebalances", WITHIN_S)
    hang_up()
    assert found["kind"] == "rebalancing" or (found["kind"], is_ours) == ("members_not_rejoined", True)


def rebalancing(run: Run, group: str) -> dict[str, Any] | None:
    """The finding about the rebalance that is under way."""
    found = run(make_app("doctor"), "doctor", group, "--output", "json").json
    return next((each for each in found if each["kind"] in {"rebalancing", "members_not_rejoined"}), None)


@pytest.mark.parametrize("command", ["explain", "watch", "doctor"])
def test_help_says_what_it_does(command: str) -> None:
    """The help shows the options of the command."""
    ran = run_app(make_app(command), command, "--help")
    assert ran.code == 0
    assert "--bootstrap-server" in ran.out


def test_what_is_true_of_all_groups_is_one_line() -> None:
    """Dropped events may concern any group: with --all they are one line, for a single group they are its finding."""
    found = [
        diagnosis.Finding(diagnosis.Severity.ERROR, "events_dropped", name, "3 events could not be kept", "see", 7, 1)
        for name in "gh"
    ]
    assert _together(found) == {
        "events_dropped": "any group: error: 3 events could not be kept (last at 1970-01-01 00:00:00.007Z); see"
    }
    assert _together(found[:1]) == {}


def test_groups_without_a_coordinator_are_one_line() -> None:
    """With --all; a single one is its finding. The line names each error once, and the first groups."""
    found = [unavailable(f"g{number}", "NOT_COORDINATOR") for number in range(NAMED_MAX + 2)]
    found.append(unavailable("h", "COORDINATOR_NOT_AVAILABLE"))
    names = ", ".join(f"g{number}" for number in range(NAMED_MAX))
    assert _together(found) == {
        "group_unavailable": "13 groups: error: their coordinators don't answer: COORDINATOR_NOT_AVAILABLE, "
        f"NOT_COORDINATOR: {names} and 3 more; {UNAVAILABLE_ADVICE}"
    }
    assert _together(found[:1]) == {}
