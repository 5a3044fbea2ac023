"""Leave, committed offsets, and what admins ask."""

from __future__ import annotations

from protocol.messages import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from tests.oracle.stage import Stage, commit_topics, script, script_for, subscription

TOPIC = "offsets"
OTHER_TOPIC = "other-offsets"


@script_for(0, 1, 2, 3, 4, 5)
def leave_of_unknown_ones(stage: Stage, version: int) -> None:
    """v0-2 put the error on top; from v3 on top is NONE even for an unknown group, except for an invalid group id."""
    a = stage.client("a")
    for group in (stage.group, ""):
        a.leave(("", None), version=version, group=group)
        a.leave(("somebody", None), version=version, group=group)
        if version >= 3:
            a.leave(("", "A"), version=version, group=group)
            a.leave(("somebody", "A"), ("", None), version=version, group=group)
            a.ask(LeaveGroupRequest(group_id=group), version)
    stage.form(a)
    a.leave(("", None), version=version)
    a.leave(("somebody", None), version=version)
    if version >= 3:
        a.ask(LeaveGroupRequest(group_id=stage.group), version)
    a.heartbeat()
    a.describe()


@script_for(0, 1, 2, 3, 4, 5)
def leave_of_a_member(stage: Stage, version: int) -> None:
    """A member leaves in each version; once more is UNKNOWN_MEMBER_ID."""
    a, b = stage.clients("a b")
    stage.form(a, b)
    b.leave(version=version)
    b.leave(version=version)
    a.heartbeat()
    a.leave(version=version)
    a.leave(version=version)
    a.describe()


@script()
def leave_with_a_reason(stage: Stage) -> None:
    """KIP-800: a reason changes nothing."""
    (a,) = stage.statics("a", version=9)
    stage.form(a)
    member = LeaveGroupRequest.MemberIdentity(member_id="", group_instance_id="A", reason="the consumer is closed")
    a.ask(LeaveGroupRequest(group_id=stage.group, members=[member]), 5)


@script_for(1, 5, 9)
def commits_by_state(stage: Stage, version: int) -> None:
    """KAFKA-8487: CompletingRebalance REBALANCE_IN_PROGRESS; Stable and PreparingRebalance accept; Empty unknown."""
    topic = stage.topic(TOPIC, 2)
    a, b = stage.clients("a b", version=version)
    a.enter()
    a.commit(topic)
    a.commit(topic, generation_id_or_member_epoch=77)
    a.commit(topic, member_id="somebody")
    a.sync({a: b"a"})
    a.synced()
    a.commit(topic, 2)
    a.commit(topic, 3, generation_id_or_member_epoch=0)
    if version >= 4:
        b.join()
        b.joined()
    b.join()
    a.commit(topic, 4)
    a.commit(topic, 5, generation_id_or_member_epoch=77)
    a.fetch_offsets(None)
    a.join()
    a.joined()
    b.joined()
    a.leave()
    b.leave()
    a.commit(topic, 6)
    a.commit(topic, 7, member_id="", generation_id_or_member_epoch=-1)
    a.fetch_offsets(None)


@script_for(1, 2, 3, 4, 5, 6, 7, 8, 9)
def simple_commits(stage: Stage, version: int) -> None:
    """Generation -1 without a group: the group is made, Empty and without type; unknown partitions are refused."""
    topic, other = stage.topic(TOPIC, 2), stage.topic(OTHER_TOPIC, 1)
    a = stage.client("a")
    topics = commit_topics({topic: {0: 5, 1: -1, 2: 5}, other: {0: 6}, "no-such-topic": {0: 7}})
    a.ask(OffsetCommitRequest(group_id=stage.group, topics=topics), version)
    a.describe()
    a.list_groups()
    a.fetch_offsets(None)
    a.fetch_offsets({topic: [0, 1, 2], "no-such-topic": [0], other: []})
    a.ask(OffsetCommitRequest(group_id=f"{stage.group}.none"), version)
    a.describe(f"{stage.group}.none")


@script_for(2, 3, 4)
def commits_with_a_retention_time(stage: Stage, version: int) -> None:
    """The retention time of v2 to v4 is taken; the offset is there while it lasts."""
    topic = stage.topic(TOPIC, 2)
    a = stage.client("a")
    topics = commit_topics({topic: {0: 5}})
    a.ask(OffsetCommitRequest(group_id=stage.group, retention_time_ms=3_600_000, topics=topics), version)
    a.fetch_offsets({topic: [0]})


@script()
def simple_commits_and_members(stage: Stage) -> None:
    """A group with committed offsets takes members; while it has some, simple commits are refused."""
    topic = stage.topic(TOPIC, 2)
    a, simple = stage.client("a", version=9), stage.client("simple", version=9)
    simple.commit(topic, 1)
    stage.form(a)
    simple.commit(topic, 2)
    simple.commit(topic, 2, generation_id_or_member_epoch=1)
    a.commit(topic, 3)
    a.describe()
    a.leave()
    a.describe()
    simple.commit(topic, 4)
    a.fetch_offsets(None)


@script()
def committed_metadata_and_epochs(stage: Stage) -> None:
    """Null metadata reads back as empty; leader epochs are kept; over 4096 bytes of metadata are refused."""
    topic = stage.topic(TOPIC, 2)
    a = stage.client("a")
    for metadata in (None, "", "text", "x" * 4096, "x" * 4097, "é" * 2049):
        a.ask(OffsetCommitRequest(group_id=stage.group, topics=commit_topics({topic: {0: 5}}, metadata)), 8)
        a.fetch_offsets({topic: [0]})
    topics = commit_topics({topic: {0: 5, 1: 6}})
    topics[0].partitions[0].committed_leader_epoch = 3
    a.ask(OffsetCommitRequest(group_id=stage.group, topics=topics), 8)
    a.fetch_offsets({topic: [1, 0]})
    a.ask(OffsetCommitRequest(group_id=stage.group, topics=commit_topics({topic: {0: 5}})), 5)
    a.fetch_offsets({topic: [0]})


@script()
def offsets_of_old(stage: Stage) -> None:
    """OffsetCommit v0 and OffsetFetch v0, which meant ZooKeeper: UNSUPPORTED_VERSION for each partition."""
    topic = stage.topic(TOPIC, 2)
    a = stage.client("a")
    a.ask(OffsetCommitRequest(group_id=stage.group, topics=commit_topics({topic: {0: 5, 1: 6}})), 0)
    a.ask(_fetch_one(stage.group, {topic: [0, 1]}), 0)
    a.describe()


@script_for(1, 2, 3, 4, 5, 6, 7)
def fetches_of_one_group(stage: Stage, version: int) -> None:
    """Some, all and none of a group's offsets; those of an unknown group and of the group without name."""
    topic, other = stage.topic(TOPIC, 2), stage.topic(OTHER_TOPIC, 1)
    a = stage.client("a")
    a.ask(OffsetCommitRequest(group_id=stage.group, topics=commit_topics({topic: {0: 5, 1: 6}, other: {0: 7}})), 8)
    for group in (stage.group, f"{stage.group}.unknown"):
        a.ask(_fetch_one(group, {topic: [1, 0, 9], "no-such-topic": [0]}), version)
        a.ask(_fetch_one(group, {}), version)
        if version >= 2:
            a.ask(_fetch_one(group, None), version)
        if version >= 7:
            stable = _fetch_one(group, None)
            stable.require_stable = True
            a.ask(stable, version)


@script_for(8, 9)
def fetches_of_several_groups(stage: Stage, version: int) -> None:
    """OffsetFetch v8 and later: groups are answered one by one, in the order in which they are asked."""
    topic, other = stage.topic(TOPIC, 2), stage.topic(OTHER_TOPIC, 1)
    a = stage.client("a")
    a.ask(OffsetCommitRequest(group_id=stage.group, topics=commit_topics({topic: {0: 5, 1: 6}, other: {0: 7}})), 8)
    group, topics = OffsetFetchRequest.OffsetFetchRequestGroup, OffsetFetchRequest.OffsetFetchRequestTopics
    asked = [
        group(group_id=f"{stage.group}.unknown", topics=None),
        group(group_id=stage.group, topics=[topics(name=topic, partition_indexes=[1, 7])]),
        group(group_id=stage.group, topics=None),
        group(group_id=f"{stage.group}.unknown", topics=[topics(name=topic, partition_indexes=[0])]),
        group(group_id=stage.group, topics=[]),
    ]
    a.ask(OffsetFetchRequest(groups=asked), version)
    a.ask(OffsetFetchRequest(groups=asked, require_stable=True), version)
    if version >= 9:
        a.ask(OffsetFetchRequest(groups=[group(group_id=stage.group, member_id="x", member_epoch=3)]), version)


@script()
def group_without_name(stage: Stage) -> None:
    """The group id "" is valid for OffsetCommit, OffsetFetch, Describe and Delete; not for what makes members."""
    topic = stage.topic(TOPIC, 2)
    a = stage.client("a")
    a.describe("")
    a.delete_groups("")
    a.ask(OffsetCommitRequest(group_id="", topics=commit_topics({topic: {0: 5}})), 8)
    a.fetch_offsets({topic: [0]}, group="")
    a.describe("")
    a.delete_offsets({topic: [0]}, group="")
    a.ask(OffsetCommitRequest(group_id="", generation_id_or_member_epoch=1, topics=commit_topics({topic: {0: 5}})), 8)
    a.delete_groups("")
    a.fetch_offsets({topic: [0]}, group="")
    a.describe("")


@script_for(0, 1, 2, 3, 4, 5)
def describe_by_state(stage: Stage, version: int) -> None:
    """Outside of Stable protocol, metadata and assignments are blank; an emptied group keeps its protocol type."""
    a = stage.client("a", version=5, protocols={"range": subscription("a")}, instance="A")
    b = stage.client("b", version=5, protocols={"range": subscription("a")})
    a.describe(version=version)
    a.enter()
    a.describe(version=version)
    a.sync({a: b"assignment"})
    a.synced()
    a.describe(version=version)
    b.join()
    b.joined()
    a.describe(version=version)
    b.join()
    a.describe(version=version)
    a.join()
    a.joined()
    b.joined()
    a.leave()
    b.leave()
    a.describe(version=version)
    a.describe(stage.group, f"{stage.group}.unknown", stage.group, version=version)
    a.ask(DescribeGroupsRequest(), version)


@script_for(3, 4, 5)
def describe_with_operations(stage: Stage, version: int) -> None:
    """Describe has the caller's permissions if the caller asks, also for an unknown group."""
    a = stage.client("a")
    stage.form(a)
    groups = [stage.group, f"{stage.group}.unknown"]
    a.ask(DescribeGroupsRequest(groups=groups, include_authorized_operations=True), version)
    a.ask(DescribeGroupsRequest(groups=groups, include_authorized_operations=False), version)


@script_for(0, 1, 2, 3, 4, 5)
def list_by_version(stage: Stage, version: int) -> None:
    """ListGroups has the fields of each version."""
    a, b = stage.client("a", group=f"{stage.group}.a"), stage.client("b", group=f"{stage.group}.b")
    stage.form(a)
    b.enter()
    a.list_groups(version=version)


@script()
def list_with_filters(stage: Stage) -> None:
    """States and types in any case; an unknown one matches nothing and is no error."""
    a, b = stage.client("a", group=f"{stage.group}.a"), stage.client("b", group=f"{stage.group}.b")
    stage.form(a)
    b.join()
    b.joined()
    for states in (["Stable"], ["stable", "EMPTY"], ["PreparingRebalance"], ["nonsense"], [""], ["Dead"]):
        a.list_groups(states=states)
        a.list_groups(states=states, version=4)
    for types in (["classic"], ["Classic"], ["consumer"], ["share"], ["nonsense"], [""], ["consumer", "CLASSIC"]):
        a.list_groups(types=types)
    a.list_groups(states=["stable"], types=["classic"])
    a.list_groups(states=["stable"], types=["consumer"])


@script_for(0, 1, 2)
def delete_groups(stage: Stage, version: int) -> None:
    """Unknown: GROUP_ID_NOT_FOUND; with members: NON_EMPTY_GROUP; each id is answered once."""
    topic = stage.topic(TOPIC, 2)
    a, simple = stage.client("a", group=f"{stage.group}.a"), stage.client("simple")
    stage.form(a)
    simple.commit(topic)
    unknown = f"{stage.group}.unknown"
    a.delete_groups(a.group, unknown, simple.group, unknown, version=version)
    a.describe(a.group, simple.group)
    simple.fetch_offsets(None)
    a.leave()
    a.delete_groups(a.group, a.group, version=version)
    a.delete_groups(a.group, version=version)
    a.describe()
    a.list_groups()
    stage.form(a.restarted("again"))


@script()
def delete_a_group_by_state(stage: Stage) -> None:
    """Only an Empty group can be deleted; pending members don't save it."""
    a, b = stage.clients("a b")
    a.join()
    a.joined()
    a.delete_groups()
    a.join()
    a.joined()
    a.member_id = ""
    a.enter()
    a.delete_groups()
    a.sync({a: b"a"})
    a.synced()
    a.delete_groups()
    b.join()
    b.joined()
    b.join()
    a.delete_groups()


@script()
def delete_offsets(stage: Stage) -> None:
    """OffsetDelete: of a simple group everything goes, and the group with its last offset."""
    topic, other = stage.topic(TOPIC, 2), stage.topic(OTHER_TOPIC, 1)
    a = stage.client("a")
    a.delete_offsets({topic: [0]})
    a.delete_offsets({topic: [0]}, group="")
    a.delete_offsets({})
    a.ask(OffsetCommitRequest(group_id=stage.group, topics=commit_topics({topic: {0: 5, 1: 6}, other: {0: 7}})), 8)
    a.delete_offsets({})
    a.delete_offsets({topic: [0, 9], "no-such-topic": [0]})
    a.fetch_offsets(None)
    a.describe()
    a.delete_offsets({topic: [0, 1], other: [0]})
    a.describe()
    a.delete_offsets({topic: [0]})


@script()
def delete_offsets_of_a_live_group(stage: Stage) -> None:
    """Topics that a member subscribes to are GROUP_SUBSCRIBED_TO_TOPIC; the others go."""
    topic, other = stage.topic(TOPIC, 2), stage.topic(OTHER_TOPIC, 1)
    a = stage.client("a", protocols={"range": subscription(topic)})
    b = stage.client("b", protocols={"range": subscription(topic)})
    a.enter()
    a.delete_offsets({topic: [0], other: [0]})
    a.sync({a: b"a"})
    a.synced()
    for name in (topic, other):
        a.commit(name)
    a.delete_offsets({topic: [0, 9], other: [0], "no-such-topic": [0]})
    a.fetch_offsets(None)
    b.join()
    b.joined()
    b.join()
    a.delete_offsets({topic: [0], other: [0]})
    a.leave()
    b.joined()
    b.leave()
    a.delete_offsets({topic: [0]})
    a.describe()


@script()
def delete_offsets_where_thesubscription_cannot_be_parsed(stage: Stage) -> None:
    """Then every topic counts as subscribed; of a group that is no consumer's nothing can be deleted."""
    topic = stage.topic(TOPIC, 2)
    a = stage.client("a", protocols={"range": b"\xff"})
    stage.form(a)
    a.commit(topic)
    a.delete_offsets({topic: [0], "no-such-topic": [0]})
    b = stage.client("b", group=f"{stage.group}.connect", protocol_type="connect")
    stage.form(b)
    b.commit(topic)
    b.delete_offsets({topic: [0]})
    b.leave()
    b.delete_offsets({topic: [0]})
    b.describe()


@script_for(0, 1, 2, 3, 4, 5, 6)
def find_coordinator(stage: Stage, version: int) -> None:
    """The coordinator of a group, of several at once from v4 on, and of the group without name."""
    a = stage.client("a")
    if version < 4:
        for key in (stage.group, ""):
            a.ask(FindCoordinatorRequest(key=key), version)
    else:
        keys = [stage.group, "", f"{stage.group}.b", stage.group]
        a.ask(FindCoordinatorRequest(coordinator_keys=keys), version)
        a.ask(FindCoordinatorRequest(coordinator_keys=[]), version)


@script_for(1, 3, 4, 5)
def find_coordinator_of_an_unknown_kind(stage: Stage, version: int) -> None:
    """A key type that doesn't exist, or not yet: INVALID_REQUEST."""
    a = stage.client("a")
    for kind in (2, 3):
        key = {"key": "a"} if version < 4 else {"coordinator_keys": ["a", "b"]}
        a.ask(FindCoordinatorRequest(key_type=kind, **key), version)


def _fetch_one(group: str, topics: dict[str, list[int]] | None) -> OffsetFetchRequest:
    asked = (
        None
        if topics is None
        else [
            OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=partitions)
            for name, partitions in topics.items()
        ]
    )
    return OffsetFetchRequest(group_id=group, topics=asked)
