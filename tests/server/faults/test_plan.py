"""Plans: faults as values, as text, and by chance."""

from __future__ import annotations

import pytest

from coordinator.server.faults import plan
from coordinator.server.faults.plan import Action, Fault, PlanError, parse, random_plan, written
from protocol.messages import API_KEYS
from schemas.errors import ErrorCode

EVERY_KIND = [
    plan.error(ErrorCode.FENCED_INSTANCE_ID, "Heartbeat", group="workers", instance_id="worker-1", nth=3, times=2),
    plan.delay(500, "JoinGroup", "SyncGroup", member_id="m-1"),
    plan.drop_request("OffsetFetch", version=8),
    plan.drop_response("OffsetCommit", client_id="a client's name", times=None),
    plan.disconnect("JoinGroup"),
    plan.disconnect_after(group="the group = ours"),
    plan.kill("OffsetCommit", nth=2),
    plan.blackhole("worker-1"),
    plan.loading("workers"),
    plan.not_available("workers", times=4),
    plan.move("workers"),
    plan.drop_response("EndTxn", transactional_id="copier"),
    plan.disconnect("Produce", topic="orders", partition=3),
]


def test_a_plan_is_read_from_its_own_text() -> None:
    """Every kind of fault, with any condition, survives the way through its text."""
    text = written(EVERY_KIND)
    assert {fault.action for fault in EVERY_KIND} == set(Action)
    assert [_values(fault) for fault in parse(text)] == [_values(fault) for fault in EVERY_KIND]
    assert written(parse(text)) == text


def _values(fault: Fault) -> list[object]:
    return [getattr(fault, name) for name in Fault.__slots__]


def test_the_text_is_what_a_person_would_write() -> None:
    """The forms that the module's head shows."""
    lines = written([EVERY_KIND[0], EVERY_KIND[1], EVERY_KIND[3], EVERY_KIND[7]]).splitlines()
    assert lines == [
        "Heartbeat group=workers instance_id=worker-1 nth=3 times=2 -> error FENCED_INSTANCE_ID",
        "JoinGroup,SyncGroup member_id=m-1 -> delay 500",
        """OffsetCommit client_id='a client'"'"'s name' times=* -> drop-response""",
        "* client_id=worker-1 times=* -> blackhole",
    ]


def test_remarks_and_empty_lines_are_no_faults() -> None:
    """A random plan carries its seed in a remark."""
    assert parse("# seed 7\n\n  # more\n") == []


@pytest.mark.parametrize(
    "line, reason",
    [
        ("JoinGroup drop-request", "a fault is APIs, conditions, ->, an action"),
        ("JoinGroup ->", "a fault is APIs, conditions, ->, an action"),
        ("Join -> drop-request", "there is no API Join"),
        ("* -> explode", "there is no action explode"),
        ("* -> error", "error takes the name of an error"),
        ("* -> error MEMBER_TIRED", "there is no error MEMBER_TIRED"),
        ("* -> disconnect 5", "disconnect takes no argument"),
        ("* -> delay soon", "invalid literal"),
        ("* -> delay -1", "delay: -1 is not a number from 0 to 2147483647"),
        ("* colour=red -> disconnect", "colour=red is no condition, or one too many"),
        ("* group=a group=b -> disconnect", "group=b is no condition, or one too many"),
        ("* nth=0 -> disconnect", "nth: 0 is not a number from 1 to 2147483647"),
        ("* times=0 -> disconnect", "times: 0 is not a number from 1 to 2147483647"),
        ("* nth=* -> disconnect", "invalid literal"),
        ("* partition=-1 -> disconnect", "partition: -1 is not a number from 0 to 2147483647"),
        ("* group='a -> disconnect", "No closing quotation"),
    ],
)
def test_a_line_that_is_no_fault_is_named(line: str, reason: str) -> None:
    """The error names the line and says why."""
    with pytest.raises(PlanError) as raised:
        parse(f"* -> disconnect\n{line}\n")
    assert str(raised.value).startswith(f"line 2, {line!r}: ")
    assert reason in str(raised.value)


def test_an_error_that_kafka_does_not_have_is_refused() -> None:
    """A number without a name is no error code."""
    with pytest.raises(PlanError, match="there is no error 9999"):
        Fault(Action.ERROR, 9999)


def test_a_random_plan_is_the_same_for_the_same_seed() -> None:
    """Seed, count and clients decide everything; another seed gives another plan."""
    first = written(random_plan(42, 50, {"b", "a"}))
    assert written(random_plan(42, 50, ["a", "b"])) == first
    assert written(random_plan(43, 50, ["a", "b"])) != first
    assert written(parse(first)) == first


def test_a_random_plan_has_every_kind_that_clients_survive() -> None:
    """Over many faults each API and action occurs; none kills a client for good."""
    faults = random_plan(1, 500, ["a", "b"])
    assert {fault.apis for fault in faults} == {(api,) for api in plan.SURVIVABLE}
    assert {fault.action for fault in faults} == set(plan.RANDOM_ACTIONS)
    assert {fault.client_id for fault in faults} == {"a", "b"}
    codes = {ErrorCode(fault.argument) for fault in faults if fault.action is Action.ERROR}
    assert codes == {ErrorCode[name] for names in plan.SURVIVABLE.values() for name in names}
    assert {fault.client_id for fault in random_plan(1)} == {None}


def test_the_coordinators_apis_exist() -> None:
    """Every name in the tables of APIs is one."""
    assert {*plan.COORDINATED, *plan.SURVIVABLE} <= set(API_KEYS)


def test_a_fault_is_spent_after_its_times() -> None:
    """Without a number it never is."""
    spent = []
    for times in (2, None):
        fault = plan.move("g", times=times)
        for _ in range(3):
            spent.append(fault.is_spent)
            fault.fired += 1
    assert spent == [False, False, True, False, False, False]
