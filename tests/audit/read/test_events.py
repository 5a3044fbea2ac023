"""The audit joins the server's events with the log; without events its result stays the same."""

from __future__ import annotations

import json
import shutil
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from coordinator.audit.audit import Options
from coordinator.audit.check.checks import Finding
from coordinator.audit.check.history import Story
from coordinator.audit.check.limits import Limits
from coordinator.audit.read.events import GroupEvents, RecordedEvents, gather, read_events, take_until
from coordinator.audit.show.page import page
from coordinator.audit.show.summary import summary
from coordinator.story.events import event_json, fields_of, read_event
from coordinator.story.schema import EVENTS_TOPIC
from protocol.records.batch import Record, encode_batch
from tests.audit.audited import audited
from tests.audit.conftest import Script
from tests.audit.histories import rows_of, run_history
from tests.audit.scenes import GROUP, HOUR_MS, PARTS, SECOND_MS, START_MS, Scene, member, static_members
from tests.support.told import cause, told


def ended(generation: int, at_ms: int, kind: str = "member_left", **fields: Any) -> Any:
    """Make the event of a completed rebalance; fields: as in docs/run/events.md, with those of its trigger."""
    trigger = cause(kind, "m-1")
    trigger |= {name: fields.pop(name) for name in list(fields) if name in trigger}
    common = {"generation_before": generation - 1, "began_ms": at_ms - 1, "outcome": "completed", "causes": [trigger]}
    return told("rebalance_ended", at_ms=at_ms, group=GROUP, generation=generation, **(common | fields))


def fenced(instance_id: str, at_ms: int, **fields: Any) -> Any:
    """Make the event of two programs that use one instance id."""
    said = {
        "kind": "conflict", "group_instance_id": instance_id, "member_id": "m-1", "current_member_id": "m-2",
        "client": {"client_id": "one", "client_host": "/10.0.0.1"},
        "current_client": {"client_id": "two", "client_host": "/10.0.0.2"},
    }  # fmt: skip
    return told("member_fenced", at_ms=at_ms, group=GROUP, **(said | fields))


def dropped(events: int, first_ms: int, last_ms: int) -> Any:
    """Make the event of that many events that the server could not keep."""
    return told("events_dropped", at_ms=last_ms, events=events, first_ms=first_ms, last_ms=last_ms)


def story_of(scene: Scene, *events: Any) -> tuple[Story, list[Finding]]:
    """Return the story of the scene's group and its findings, with these events."""
    return run_history(0, GROUP, Limits(), rows_of(scene), scene.now_ms, gather(events).of(GROUP))


def at(second: int) -> int:
    """Return the time of the scene's record number `second`."""
    return START_MS + second * SECOND_MS


def test_cause_is_the_recorded_one() -> None:
    """An event gives a rebalance's cause, the client's reason and the wait; without one, two records give the cause."""
    scene = Scene().group([member("m-0", PARTS["a"])], 1).group([member("m-1", PARTS["a"])], 2)
    scene.group([member("m-2", PARTS["a"])], 3)
    waited = {"member_id": "m-0", "phase": "preparing", "ms": 4_200}
    cause = {"source": "client", "reason": "the consumer is being closed"}
    story = story_of(scene, ended(2, at(1) + 3, waited_for=waited, further_causes=2, **cause))[0]
    assert (story.causes_recorded, story.causes) == ({"member left": 1}, {"joined, left": 1})
    assert [step.cause for step in story.steps] == [
        "first seen",
        "member left: m-1; its client says: the consumer is being closed; 2 further causes; waited for m-0, 4.2 s",
        "joined, left",
    ]
    assert (story.rebalances, story.rebalances_forgotten, story.at_least) == (3, 0, True)


def test_rebalances_without_a_record_are_counted() -> None:
    """In a jump of generations the events count with their causes and times, and only the rest is a guess."""
    scene = Scene().group([member("m-0", PARTS["a"])], 1).tick(3 * HOUR_MS).group([member("m-1", PARTS["a"])], 21)
    assert story_of(scene)[0].rebalances_per_hour == 5
    story = story_of(scene, *(ended(number, at(number), "member_expired") for number in range(2, 10)))[0]
    assert (story.rebalances, story.rebalances_unseen, story.rebalances_forgotten) == (21, 19, 0)
    assert (story.causes_recorded, story.causes.total()) == ({"member expired": 8}, 1)
    assert story.rebalances_per_hour == 9


def test_forgotten_rebalances_are_counted() -> None:
    """Events show the rebalances whose records compaction removed, and prove that the first record isn't the first."""
    scene = Scene().tick(HOUR_MS).group([member("m-1", PARTS["a"])], 10)
    story, findings = story_of(scene, *(ended(number, at(number)) for number in range(1, 11)))
    assert (story.rebalances, story.rebalances_forgotten, story.causes_recorded) == (10, 9, {"member left": 10})
    assert (findings, story.rebalances_per_hour, story.causes, story.at_least) == ([], 10, {}, False)
    assert story.steps[0].cause == "member left: m-1; inferred by the server"


def test_storm_that_the_log_has_forgotten_is_found() -> None:
    """Events alone can show a storm, with its times and causes, after compaction removed its records."""
    scene = Scene().tick(HOUR_MS).group([member("m-1", PARTS["a"])], 20)
    (found,) = story_of(scene, *(ended(number, at(number), "member_expired") for number in range(1, 21)))[1]
    assert found.check == "rebalance_storm"
    assert json.loads(found.detail)["causes"] == {"member expired": 20}
    assert json.loads(found.detail)["first_ms"] == at(1)


def test_group_that_began_anew_has_its_own_events() -> None:
    """An event belongs to the group of its time: after a deletion the new group repeats the generations."""
    scene = Scene().group([member("m-0", PARTS["a"])], 1).group([member("m-1", PARTS["a"])], 2).delete()
    scene.group([member("m-2", PARTS["a"])], 1).group([member("m-3", PARTS["a"])], 2)
    kinds = ("member_joined", "member_left", "member_joined", "member_expired")
    events = [ended(1 + place % 2, at(second), kinds[place]) for place, second in enumerate((0, 1, 3, 4))]
    story = story_of(scene, *reversed(events))[0]
    assert (story.rebalances, story.rebalances_forgotten, story.at_least) == (4, 0, False)
    assert story.causes_recorded == {"member joined": 2, "member left": 1, "member expired": 1}


def test_rebalance_counts_however_it_ended() -> None:
    """Only events tell of a rebalance that was interrupted, or goes on: they count, without a generation."""
    scene = Scene().group([member("m-0", PARTS["a"])], 1).group([member("m-1", PARTS["a"])], 2)
    unloaded = ended(2, at(1) - 5, outcome="unloaded")
    started = told("rebalance_started", at_ms=at(1) + 5, group=GROUP, generation=2)
    story = story_of(scene, ended(1, at(0)), unloaded, ended(2, at(1)), started)[0]
    assert (story.rebalances, story.rebalances_forgotten, story.causes_recorded.total()) == (4, 2, 2)
    assert not story.at_least


def returned(life: int, at_ms: int, **fields: Any) -> Any:
    """Make the event of a static member's return."""
    return told(
        "member_replaced", at_ms=at_ms, group=GROUP, generation=1, group_instance_id="a", member_id=f"a-{life}",
        old_member_id=f"a-{life - 1}", **fields,
    )  # fmt: skip


def test_returns_are_what_the_server_recorded() -> None:
    """With events a return is a restart, a rejoin or a takeover; the log alone shows a return, and at least that."""
    scene = Scene()
    for life in range(1, 6):
        scene.group(static_members(a=life), 1)
    events = [ended(1, at(0)), returned(2, at(1)), returned(3, at(2), after_load=True), returned(4, at(3))]
    events.append(fenced("a", at(3) + 1, member_id="a-3"))
    story = story_of(scene, *events, returned(5, at(4)))[0]
    assert (story.static_restarts, story.static_rejoins, story.takeovers) == ({"a": 2}, {"a": 1}, {"a": 1})
    assert (story.returns, story.return_count, story.at_least) == ({}, 4, False)
    assert [mark.kind for mark in story.lanes["a"].marks] == ["restart", "rejoin", "takeover", "restart"]
    story = story_of(scene, *events)[0]
    assert (story.returns, story.return_count, story.at_least) == ({"a": 1}, 4, True)
    assert [step.cause for step in story.steps][-2:] == ["takeover", "return"]


def test_conflict_is_found_with_both_parties() -> None:
    """A conflict is one finding for each instance id, with both clients; a client that meets itself is no conflict."""
    scene = Scene().group(static_members(a=1, b=1), 1)
    events = [fenced("a", at(0)), fenced("a", at(0) + 1), fenced("b", at(0), kind="self")]
    (found,) = story_of(scene, *events)[1]
    assert (found.check, found.offset, found.generation) == ("instance_contested", None, 3)
    text = "two programs had the instance id a: m-1 (one at 10.0.0.1) was fenced by m-2 (two at 10.0.0.2)"
    wanted = {"fencings": 2, "found": text, "group_instance_id": "a", "last_ms": at(0) + 1}
    assert json.loads(found.detail) == wanted
    assert story_of(scene, *reversed(events))[1] == [found]
    assert found.severity == "error"


def test_what_was_dropped_is_said() -> None:
    """Notes count dropped events, unreadable ones, and events of groups that the log doesn't have."""
    whole, fencing = fields_of(ended(2, 5)), fields_of(fenced("a", 5))
    odd = [
        replace(ended(2, 5), causes=[]),
        *(
            read_event(json.dumps(each).encode())
            for each in (
                {"version": 1, "type": "rebalance_ended", "at_ms": 1},
                whole | {"generation": "two"},
                fencing | {"client": 7},
                {"version": 1, "type": "group_deleted", "at_ms": 3},
            )
        ),
    ]
    events = gather([*odd, dropped(3, 10, 20), dropped(4, 5, 8), ended(2, 30)], passed_over=1)
    assert events.dropped == (7, 5, 20)
    first, second, third = events.notes(set())
    assert "7 events could not be kept in __rebalance_events, from 1970-01-01 00:00:00" in first
    assert "6 records" in second
    assert f"1 rebalance of 1 group that the log has forgotten: {GROUP}" in third
    assert len(events.notes({GROUP})) == 2
    assert RecordedEvents().notes(set()) == []
    assert RecordedEvents(refused="no").notes(set()) == ["__rebalance_events can't be read: no"]


def test_each_is_taken_once() -> None:
    """Each event belongs to one record, also if its time is a moment after the record's."""
    left = deque(gather([ended(2, 1_050), ended(3, 1_100), ended(4, 9_000)]).of(GROUP).rebalances)
    assert [each.generation for each in take_until(left, 1_000, 1, 2)] == [2]
    assert take_until(left, 1_000, 2, 2) == []
    assert [each.generation for each in take_until(left, 1_100, 2, 3)] == [3]
    assert [each.generation for each in left] == [4]


def write(folder: Path, node: int, *events: Any) -> None:
    """Write the partition of a node, one batch for each event."""
    path = folder / f"{EVENTS_TOPIC}-{node}"
    path.mkdir(parents=True)
    values = [event if isinstance(event, bytes) else event_json(event) for event in events]
    batches = [encode_batch([Record(b"", value, 1)], offset, 0) for offset, value in enumerate(values)]
    (path / f"{0:020}.log").write_bytes(b"".join(batches) + batches[0][:40])


def test_topic_is_read_from_the_folder(tmp_path: Path) -> None:
    """The audit reads all nodes' partitions, ignores a half written batch at the end, and counts unreadable records."""
    scene = Scene().group([member("m-0", PARTS["a"])], 1).group([member("m-1", PARTS["a"])], 2)
    folder = scene.group([member("m-1", PARTS["a"])], 3).write(tmp_path)
    assert read_events(folder) == RecordedEvents()
    write(folder, 0, ended(3, at(2), group_instance_id="<b>"), b"\xff", b'{"version":2,"type":"x","at_ms":1}')
    write(folder, 1, ended(2, at(1), "member_expired"))
    (folder / f"{EVENTS_TOPIC}-0" / f"{0:020}.index").touch()
    result = audited(folder)
    assert result.stories[0].causes_recorded == {"member left": 1, "member expired": 1}
    assert result.notes == ["2 records of __rebalance_events could not be read"]
    assert summary(result)["groups"][GROUP]["causes_told"] == {"member expired": 1, "member left": 1}
    assert "&lt;b&gt;" in page(result)
    assert "<b>" not in page(result)


def test_real_server_records_every_cause(script: Script, compacted: Path, tmp_path: Path) -> None:
    """A real server's events give the cause of every rebalance, also of those that compaction removed."""
    if not (script.folder / f"{EVENTS_TOPIC}-0").exists():
        assert all(not story.causes_recorded for story in audited(script.folder).stories)
        return
    folder = shutil.copytree(compacted, tmp_path / "log")
    shutil.copytree(script.folder / f"{EVENTS_TOPIC}-0", folder / f"{EVENTS_TOPIC}-0")
    options = Options(Limits(partition_count=4))
    whole, left = (summary(audited(each, options=options))["groups"] for each in (script.folder, folder))
    storm = whole[script.storm]
    assert storm["causes_told"] == {"member joined": 1 + script.storm_rounds, "member left": script.storm_rounds + 1}
    assert (storm["causes"], storm["rebalances_forgotten"]) == ({}, 0)
    assert left[script.storm]["rebalances"] == storm["rebalances"]
    assert left[script.storm]["rebalances_forgotten"] == storm["rebalances"] - 1
    assert audited(folder, options=options).findings == []


@pytest.mark.parametrize(
    "recorded", [GroupEvents(), gather([ended(2, 1)]).of("another")], ids=["no topic", "another group"]
)
def test_no_event_changes_nothing(recorded: GroupEvents) -> None:
    """Without events of the group the result is the same as for a log of Apache Kafka."""
    scene = Scene().group([member("m-0", PARTS["a"])], 1).group([member("m-1", PARTS["a"])], 2)
    arguments = 0, GROUP, Limits(), rows_of(scene), scene.now_ms
    assert run_history(*arguments, recorded) == run_history(*arguments)
