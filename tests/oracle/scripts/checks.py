"""Errors, and the order in which a request is checked."""

from __future__ import annotations

from typing import Any

from protocol.messages import HeartbeatRequest, SyncGroupRequest
from tests.oracle.stage import SHORT_MS, Stage, script, script_for

Changes = tuple[dict[str, Any], ...]

NOBODY = "nobody-00000000-0000-0000-0000-000000000000"
TOPIC = "checks"


@script_for(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
def join_refusals(stage: Stage, version: int) -> None:
    """JoinGroup checks the group id, then the session timeout, then the member; what else the answers hold."""
    a = stage.client("a", version=version)
    refused: Changes = (
        {"group_id": "", "session_timeout_ms": 0, "member_id": "somebody"},
        {"session_timeout_ms": 0, "member_id": "somebody"},
        {"session_timeout_ms": -5},
        {"session_timeout_ms": 1_800_001},
        {"member_id": "somebody"},
        {"member_id": "somebody", "protocol_type": "", "protocols": []},
    )
    for changes in refused:
        a.join(**changes)
        a.joined()
        a.describe()


@script_for(5, 7, 9)
def static_join_refusals(stage: Stage, version: int) -> None:
    """A join with member id and instance id: unknown to a group that isn't there, or fenced, or of another instance."""
    a, b = stage.statics("a b", version=version)
    a.join(member_id="somebody")
    a.joined()
    a.describe()
    stage.form(a, b)
    refused: Changes = (
        {"member_id": "somebody"},
        {"member_id": b.member_id},
        {"group_instance_id": "C"},
        {"member_id": "somebody", "group_instance_id": "C"},
        {"member_id": "somebody", "protocol_type": "connect"},
        {"member_id": "", "protocol_type": "connect"},
        {"member_id": "somebody", "protocols": []},
        {"member_id": b.member_id, "session_timeout_ms": 0},
    )
    for changes in refused:
        a.join(**changes)
        a.joined()
    a.heartbeat()
    b.heartbeat()
    a.describe()


@script_for(0, 4, 5, 9)
def join_without_protocols_creates_the_group(stage: Stage, version: int) -> None:
    """No protocols or no protocol type is INCONSISTENT_GROUP_PROTOCOL; but the group is there afterwards, and Empty."""
    a = stage.client("a", version=version)
    without: Changes = ({"protocols": []}, {"protocol_type": ""}, {"protocols": [], "protocol_type": ""})
    for number, changes in enumerate(without):
        a.join(group_id=f"{stage.group}.{number}", **changes)
        a.joined()
        a.describe(f"{stage.group}.{number}")
    a.list_groups()


@script_for(0, 4, 7, 9)
def join_with_other_protocols(stage: Stage, version: int) -> None:
    """No protocol in common, or another protocol type: INCONSISTENT_GROUP_PROTOCOL, and the members go on."""
    a = stage.client("a", version=version)
    stage.form(a)
    b = stage.client("b", version=version, protocols=["roundrobin"])
    b.join()
    b.joined()
    c = stage.client("c", version=version, protocol_type="connect")
    c.join()
    c.joined()
    c.join(member_id="somebody")
    c.joined()
    a.heartbeat()
    a.describe()


@script_for(5, 9)
def instance_then_member_then_generation(stage: Stage, version: int) -> None:
    """Sync, Heartbeat and Commit check the instance, then the member, then the generation."""
    topic = stage.topic(TOPIC, 1)
    a, b = stage.statics("a b", version=version)
    stage.form(a, b)
    wrong: Changes = (
        {"member_id": NOBODY, "generation_id": 77},
        {"member_id": b.member_id, "generation_id": 77},
        {"member_id": NOBODY, "group_instance_id": None, "generation_id": 77},
        {"member_id": NOBODY, "group_instance_id": "C", "generation_id": 77},
        {"group_instance_id": "C", "generation_id": 77},
        {"group_instance_id": "B", "generation_id": 77},
        {"generation_id": 77},
        {"generation_id": 0},
        {"generation_id": -1},
        {"group_instance_id": None},
        {},
    )
    for changes in wrong:
        a.sync(**changes)
        a.synced()
        a.heartbeat(**changes)
        as_commit = {
            "generation_id_or_member_epoch" if name == "generation_id" else name: value
            for name, value in changes.items()
        }
        a.commit(topic, **as_commit)
    a.describe()


@script_for(5, 9)
def empty_member_id_with_known_instance(stage: Stage, version: int) -> None:
    """An empty member id with a known instance id is FENCED in Sync, Heartbeat and Commit."""
    topic = stage.topic(TOPIC, 1)
    (a,) = stage.statics("a", version=version)
    stage.form(a)
    a.sync(member_id="")
    a.synced()
    a.heartbeat(member_id="")
    a.commit(topic, member_id="")
    a.commit(topic, member_id="", generation_id_or_member_epoch=-1)
    a.heartbeat()


@script()
def right_member_with_unknown_instance_stays(stage: Stage) -> None:
    """KAFKA-20747: a member that names another, unknown instance is UNKNOWN_MEMBER_ID, and stays a member."""
    topic = stage.topic(TOPIC, 1)
    a, b = stage.statics("a b")
    stage.form(a, b)
    a.join(group_instance_id="Z")
    a.joined()
    a.sync(group_instance_id="Z")
    a.synced()
    a.heartbeat(group_instance_id="Z")
    a.commit(topic, group_instance_id="Z")
    a.leave((a.member_id, "Z"))
    a.heartbeat()
    a.describe()


@script_for(5, 9)
def static_member_leaves_its_instance_out(stage: Stage, version: int) -> None:
    """A static member with its member id may leave out its instance id in Sync, Heartbeat, Commit and Join."""
    topic = stage.topic(TOPIC, 1)
    a, b = stage.statics("a b", version=version)
    stage.form(a, b)
    b.sync(group_instance_id=None)
    b.synced()
    b.heartbeat(group_instance_id=None)
    b.commit(topic, group_instance_id=None)
    b.join(group_instance_id=None)
    b.joined()
    b.heartbeat()
    b.describe()


@script_for(5, 9)
def replaced_member_is_fenced_or_unknown(stage: Stage, version: int) -> None:
    """KAFKA-8225: the id of a replaced member is FENCED with its instance id, and UNKNOWN_MEMBER_ID without."""
    topic = stage.topic(TOPIC, 1)
    a, b = stage.statics("a b", version=version)
    stage.form(a, b)
    twin = b.restarted("twin")
    twin.enter()
    ways: Changes = ({}, {"group_instance_id": None})
    for changes in ways:
        b.join(**changes)
        b.joined()
        b.sync(**changes)
        b.synced()
        b.heartbeat(**changes)
        b.commit(topic, **changes)
    b.leave((b.member_id, "B"))
    b.leave((b.member_id, None))
    twin.heartbeat()
    twin.describe()


@script()
def expired_member_is_unknown(stage: Stage) -> None:
    """After its session timeout a static member is UNKNOWN_MEMBER_ID, with its instance id and without."""
    topic = stage.topic(TOPIC, 1)
    (a,) = stage.statics("a", session_timeout_ms=SHORT_MS)
    stage.form(a)
    stage.until_members(0)
    ways: Changes = ({}, {"group_instance_id": None})
    for changes in ways:
        a.join(**changes)
        a.joined()
        a.sync(**changes)
        a.synced()
        a.heartbeat(**changes)
        a.commit(topic, **changes)
    a.leave((a.member_id, "A"))
    a.leave(("", "A"))
    a.describe()


@script()
def sync_v5_names_type_and_protocol(stage: Stage) -> None:
    """SyncGroup v5 without protocol type or name is INCONSISTENT_GROUP_PROTOCOL before all else; a wrong one after."""
    (a,) = stage.statics("a", version=9)
    a.enter()
    wrong: Changes = (
        {"protocol_type": None},
        {"protocol_name": None},
        {"protocol_type": None, "protocol_name": None},
        {"protocol_type": None, "generation_id": 77},
        {"protocol_type": None, "member_id": NOBODY},
        {"protocol_type": None, "group_id": ""},
        {"protocol_type": None, "group_id": f"{stage.group}.unknown"},
        {"protocol_type": "connect"},
        {"protocol_name": "sticky"},
        {"protocol_type": ""},
        {"protocol_type": "connect", "generation_id": 77},
        {"protocol_type": "connect", "member_id": NOBODY},
        {"protocol_type": "connect", "member_id": NOBODY, "group_instance_id": None},
        {"protocol_type": "connect", "group_id": f"{stage.group}.unknown"},
    )
    for changes in wrong:
        a.sync(**changes)
        a.synced()
    a.sync({a: b"A"})
    a.synced()


@script()
def sync_before_v5_needs_no_protocol(stage: Stage) -> None:
    """SyncGroup up to v4 has no protocol type and name to check."""
    (a,) = stage.statics("a", version=6)
    a.enter()
    a.sync({a: b"A"}, version=4, protocol_type="connect", protocol_name="sticky")
    a.synced()


@script_for(4, 5, 7, 9)
def pending_id_with_an_instance(stage: Stage, version: int) -> None:
    """A pending member id that joins with an instance id gets UNKNOWN_SERVER_ERROR, and stays pending."""
    a = stage.client("a", version=version)
    a.join()
    a.joined()
    if version >= 5:
        other = stage.client("other", version=version, instance="A")
        a.join(group_instance_id="A")
        a.joined()
        a.describe()
        other.enter()
        a.join(group_instance_id="A")
        a.joined()
        other.leave(("", "A"))
        stage.until_state("Empty")
    a.join()
    a.joined()
    a.describe()


@script()
def pending_id_is_no_member(stage: Stage) -> None:
    """A pending member id is unknown to Sync, Heartbeat and Commit; Leave knows it, once."""
    topic = stage.topic(TOPIC, 1)
    a = stage.client("a")
    a.join()
    a.joined()
    a.sync(generation_id=0)
    a.synced()
    a.heartbeat(generation_id=0)
    a.commit(topic, generation_id_or_member_epoch=0)
    a.leave((a.member_id, "A"))
    a.leave((a.member_id, None), (a.member_id, None))
    a.join()
    a.joined()
    a.describe()


@script_for(0, 1, 2, 3, 5, 6, 7, 9)
def group_that_is_not_there(stage: Stage, version: int) -> None:
    """Each request about an unknown group, and about an empty group id, has its own error."""
    topic = stage.topic(TOPIC, 1)
    a = stage.client("a", version=version)
    a.member_id, a.generation, a.protocol_name = NOBODY, 1, "range"
    for group in (stage.group, ""):
        a.group = group
        a.sync()
        a.synced()
        a.heartbeat()
        a.leave()
        if group:
            a.commit(topic)
        a.describe(stage.group)


@script()
def nobody_in_an_empty_group(stage: Stage) -> None:
    """An Empty group: Sync, Heartbeat and Commit of any member are UNKNOWN_MEMBER_ID; with an empty id too."""
    topic = stage.topic(TOPIC, 1)
    a = stage.client("a", version=9)
    stage.form(a)
    a.leave()
    for member_id in (a.member_id, NOBODY, ""):
        a.sync(member_id=member_id)
        a.synced()
        a.heartbeat(member_id=member_id)
        a.commit(topic, member_id=member_id)
    a.ask(HeartbeatRequest(group_id=stage.group), 0)
    a.ask(SyncGroupRequest(group_id=stage.group), 0)
    a.describe()
