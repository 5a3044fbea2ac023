"""Static members (KIP-345, KIP-814): replacement in each state, fencing, what evicts them and what does not."""

from __future__ import annotations

from tests.oracle.stage import LONGER_MS, SHORT_MS, Stage, protocol_list, script, script_for

TOPIC = "static"


@script_for(5, 6, 7, 8, 9)
def static_member_is_never_pending(stage: Stage, version: int) -> None:
    """KAFKA-7862: a static member's first join gets no MEMBER_ID_REQUIRED; its id is its instance id and a UUID."""
    a, b = stage.statics("a b", version=version)
    stage.form(a, b)
    a.heartbeat()
    b.heartbeat()
    a.describe()


@script_for(5, 6, 7, 8, 9)
def leader_restarts_in_stable(stage: Stage, version: int) -> None:
    """Up to v8 the answer names the old leader and no members; v9 names the new id, all members and skipAssignment."""
    a, b = stage.statics("a b", version=version)
    stage.form(a, b)
    again = a.restarted("again")
    again.enter()
    again.sync()
    again.synced()
    again.heartbeat()
    b.heartbeat()
    a.heartbeat()
    again.describe()
    # The new id leads the next generation.
    c = stage.client("c", version=version, instance="C")
    c.join()
    b.join()
    again.join()
    again.joined()
    b.joined()
    c.joined()


@script_for(5, 7, 9)
def follower_restarts_in_stable(stage: Stage, version: int) -> None:
    """A follower that restarts gets the generation and its old assignment, and nobody rebalances."""
    a, b = stage.statics("a b", version=version)
    stage.form(a, b)
    again = b.restarted("again")
    again.enter()
    again.sync()
    again.synced()
    again.heartbeat()
    a.heartbeat()
    b.heartbeat()
    again.describe()


@script_for(5, 9)
def restarts_one_after_the_other(stage: Stage, version: int) -> None:
    """A roll of three members, the leader among them, moves nothing."""
    a, b, c = stage.statics("a b c", version=version)
    stage.form(a, b, c)
    for member in (a, b, c):
        again = member.restarted(f"{member.name}2")
        again.enter()
        again.sync()
        again.synced()
        again.heartbeat()
    a.describe()


@script()
def a_lone_static_member_restarts(stage: Stage) -> None:
    """A group of one: its restart is a leader's restart."""
    (a,) = stage.statics("a", version=9)
    stage.form(a)
    again = a.restarted("again")
    again.enter()
    again.sync()
    again.synced()
    older = a.restarted("older", version=5)
    older.enter()
    older.sync()
    older.synced()
    older.heartbeat()
    older.describe()


@script_for(5, 9)
def restarted_leader_may_assign_again(stage: Stage, version: int) -> None:
    """An assignment that a restarted leader sends in Stable is ignored: it gets what is there."""
    a, b = stage.statics("a b", version=version)
    stage.form(a, b)
    again = a.restarted("again")
    again.enter()
    again.sync({again: b"other", b: b"other"})
    again.synced()
    b.sync()
    b.synced()
    again.describe()


@script_for(5, 9)
def restart_with_other_metadata(stage: Stage, version: int) -> None:
    """KAFKA-12759: other metadata under the same selected protocol doesn't rebalance; Describe shows the new one."""
    a, b = stage.statics("a b", version=version, protocols={"range": b"old"})
    stage.form(a, b)
    b2 = b.restarted("b2", protocols={"range": b"new"})
    b2.enter()
    b2.describe()
    a2 = a.restarted("a2", protocols={"range": b"newer"})
    a2.enter()
    a2.heartbeat()
    b2.heartbeat()
    a2.describe()


@script_for(5, 9)
def restart_with_further_protocols(stage: Stage, version: int) -> None:
    """Further protocols that leave the selected one selected don't rebalance."""
    a, b = stage.statics("a b", version=version)
    stage.form(a, b)
    b2 = b.restarted("b2", protocols=["range", "sticky"])
    b2.enter()
    a2 = a.restarted("a2", protocols=["sticky", "range"])
    a2.enter()
    a2.heartbeat()
    b2.heartbeat()
    a2.describe()


@script_for(5, 9)
def restart_that_changes_the_selected_protocol(stage: Stage, version: int) -> None:
    """If the vote would now select another protocol, the restart rebalances."""
    a, b = stage.statics("a b", version=version, protocols=["range", "sticky"])
    stage.form(a, b)
    b2 = b.restarted("b2", protocols=["sticky"])
    b2.join()
    b2.waits()
    a.heartbeat()
    b.heartbeat()
    a.join()
    a.joined()
    b2.joined()
    a.describe()


@script_for(5, 9)
def leader_restart_that_changes_the_selected_protocol(stage: Stage, version: int) -> None:
    """The same by the leader: its new id leads."""
    a, b = stage.statics("a b", version=version, protocols=["range", "sticky"])
    stage.form(a, b)
    a2 = a.restarted("a2", protocols=["sticky"])
    a2.join()
    a2.waits()
    b.heartbeat()
    b.join()
    b.joined()
    a2.joined()


@script_for(5, 9)
def lone_member_restarts_with_another_protocol(stage: Stage, version: int) -> None:
    """A lone static member that restarts with a protocol that it did not list before: INCONSISTENT_GROUP_PROTOCOL."""
    (a,) = stage.statics("a", version=version)
    stage.form(a)
    again = a.restarted("again", protocols=["sticky"])
    again.join()
    again.joined()
    a.heartbeat()
    listed = a.restarted("listed", protocols=["sticky", "range"])
    listed.join()
    listed.joined()


@script()
def old_session_timeout_runs_on_after_a_restart(stage: Stage) -> None:
    """The session timeout of the restarted member comes into force with its next heartbeat or sync, not before."""
    a, b = stage.client("a", instance="A"), stage.client("b", instance="B", session_timeout_ms=2 * SHORT_MS)
    stage.form(a, b)
    b2 = b.restarted("b2", session_timeout_ms=60_000)
    b2.enter()
    stage.until_members(1)
    b2.heartbeat()
    b2.describe()


@script()
def new_session_timeout_is_in_force_after_a_heartbeat(stage: Stage) -> None:
    """KAFKA-14009: a restart's timeouts replace the former ones; a heartbeat puts the session timeout into force."""
    a, b = stage.client("a", instance="A"), stage.client("b", instance="B", session_timeout_ms=2_000)
    stage.form(a, b)
    b2 = b.restarted("b2", session_timeout_ms=60_000)
    b2.enter()
    b2.heartbeat()
    stage.pass_time(2_200)
    b2.heartbeat()
    b3 = b2.restarted("b3", session_timeout_ms=SHORT_MS)
    b3.enter()
    b3.heartbeat()
    stage.until_members(1)
    b3.heartbeat()


@script()
def new_session_timeout_is_in_force_after_a_sync(stage: Stage) -> None:
    """On 3.9 a sync in Stable puts the new session timeout into force as well."""
    a, b = stage.client("a", instance="A"), stage.client("b", instance="B", session_timeout_ms=2_000)
    stage.form(a, b)
    b2 = b.restarted("b2", session_timeout_ms=60_000)
    b2.enter()
    b2.sync()
    b2.synced()
    stage.pass_time(2_200)
    b2.heartbeat()


@script()
def new_rebalance_timeout_is_in_force_after_a_restart(stage: Stage) -> None:
    """KAFKA-14009: the next rebalance waits as long as the restarted member says."""
    a, b = stage.statics("a b")
    stage.form(a, b)
    for member in (a, b):
        again = member.restarted(f"{member.name}2", rebalance_timeout_ms=SHORT_MS)
        again.enter()
    c = stage.client("c", rebalance_timeout_ms=SHORT_MS)
    c.join()
    c.joined()
    c.join()
    # Ends by itself: nobody else rejoins, and static members stay.
    c.joined()


@script_for(5, 9)
def follower_is_replaced_in_completing(stage: Stage, version: int) -> None:
    """KAFKA-9801: a new round; the old id's waiting sync is FENCED, the others' get REBALANCE_IN_PROGRESS."""
    a, b, c = stage.statics("a b c", version=version)
    stage.form(a, b, c, assign=False)
    b.sync()
    c.sync()
    b2 = b.restarted("b2")
    b2.join()
    b.synced()
    c.synced()
    b2.waits()
    a.sync({a: b"a"})
    a.synced()
    a.join()
    c.join()
    a.joined()
    c.joined()
    b2.joined()
    a.sync({a: b"a", b2: b"b", c: b"c"})
    a.synced()
    b2.sync()
    b2.synced()
    b.heartbeat()


@script_for(5, 9)
def leader_is_replaced_in_completing(stage: Stage, version: int) -> None:
    """KAFKA-9801: the leader's replacement before it assigned anything starts a new round, which the new id leads."""
    a, b = stage.statics("a b", version=version)
    stage.form(a, b, assign=False)
    b.sync()
    a2 = a.restarted("a2")
    a2.join()
    b.synced()
    a.sync({a: b"a", b: b"b"})
    a.synced()
    b.join()
    b.joined()
    a2.joined()
    a2.sync({a2: b"a", b: b"b"})
    a2.synced()


@script_for(5, 9)
def lone_leader_is_replaced_in_completing(stage: Stage, version: int) -> None:
    """A group of one whose member restarts before it synced: the next generation at once."""
    (a,) = stage.statics("a", version=version)
    a.enter()
    a2 = a.restarted("a2")
    a2.enter()
    a.sync({a: b"a"})
    a.synced()
    a2.sync({a2: b"a"})
    a2.synced()


@script_for(5, 9)
def member_is_replaced_in_preparing(stage: Stage, version: int) -> None:
    """KAFKA-8500: the waiting join of the old id is FENCED at once; the new one waits in its stead."""
    a, b, c = stage.statics("a b c", version=version)
    stage.form(a, b)
    c.join()
    b.join()
    b2 = b.restarted("b2")
    b2.join()
    b.joined()
    b2.waits()
    c2 = c.restarted("c2")
    c2.join()
    c.joined()
    c2.waits()
    a.join()
    a.joined()
    b2.joined()
    c2.joined()
    b.heartbeat()
    c.heartbeat()


@script_for(5, 9)
def leader_is_replaced_in_preparing(stage: Stage, version: int) -> None:
    """The leader's replacement while the group prepares: the new id leads."""
    a, b, c = stage.statics("a b c", version=version)
    stage.form(a, b)
    c.join()
    a.join()
    a2 = a.restarted("a2")
    a2.join()
    a.joined()
    b.join()
    b.joined()
    a2.joined()
    c.joined()


@script()
def member_that_has_not_rejoined_is_replaced_in_preparing(stage: Stage) -> None:
    """A member that owes its join restarts: its new id's join counts."""
    a, b, c = stage.statics("a b c")
    stage.form(a, b)
    c.join()
    b2 = b.restarted("b2")
    b2.join()
    b2.waits()
    a.join()
    a.joined()
    b2.joined()
    c.joined()


@script_for(5, 9)
def three_restarts_at_once(stage: Stage, version: int) -> None:
    """KAFKA-8715: each of several restarts within one moment gets an id of its own; the last one stays."""
    a, b = stage.statics("a b", version=version)
    stage.form(a, b)
    again = [b.restarted(name) for name in ("b2", "b3", "b4")]
    for member in again:
        member.join()
    for member in again:
        member.joined()
    for member in again:
        member.heartbeat()
    a.describe()


@script()
def two_joins_of_one_program_in_flight(stage: Stage) -> None:
    """KAFKA-20985: a second join without id, while the first waits, fences the first."""
    a, b = stage.statics("a b")
    stage.form(a)
    b.join()
    b2 = b.restarted("b2")
    b2.join()
    b.joined()
    a.join()
    a.joined()
    b2.joined()
    b.heartbeat()
    b2.heartbeat()


@script_for(5, 9)
def twin_is_fenced(stage: Stage, version: int) -> None:
    """Two programs have one instance id: the last to join has the seat, any request tells the other."""
    topic = stage.topic(TOPIC, 1)
    a, b = stage.statics("a b", version=version)
    stage.form(a, b)
    twin = b.restarted("twin")
    twin.enter()
    b.heartbeat()
    b.commit(topic)
    b.sync()
    b.synced()
    b.join()
    b.joined()
    # The fenced one forgets its id and takes the seat back.
    b.member_id = ""
    b.enter()
    twin.heartbeat()
    b.heartbeat()
    a.heartbeat()


@script()
def static_member_outlives_the_rebalance_timeout(stage: Stage) -> None:
    """KAFKA-8220: a member that doesn't rejoin stays in the leader's list; its generation is ILLEGAL_GENERATION."""
    a, b = stage.statics("a b", rebalance_timeout_ms=SHORT_MS)
    stage.form(a, b)
    c = stage.client("c", instance="C", rebalance_timeout_ms=SHORT_MS)
    c.join()
    a.join()
    a.joined()
    c.joined()
    a.sync({a: b"a", b: b"b", c: b"c"})
    a.synced()
    b.heartbeat()
    b.sync()
    b.synced()
    a.describe()
    # Its rejoin with the id it has changes nothing in Stable.
    b.join()
    b.joined()
    b.sync()
    b.synced()


@script_for(5, 9)
def leader_that_does_not_rejoin_loses_the_lead(stage: Stage, version: int) -> None:
    """KAFKA-8220: another member that joined leads; the old leader stays a member and may come back."""
    a, b = stage.statics("a b", version=version, rebalance_timeout_ms=SHORT_MS)
    stage.form(a)
    b.join()
    b.joined()
    b.sync({a: b"a", b: b"b"})
    b.synced()
    a.heartbeat()
    a.join()
    a.joined()
    a.sync()
    a.synced()
    a.heartbeat()
    a.describe()


@script()
def nobody_rejoins(stage: Stage) -> None:
    """Nobody rejoins: the group stays in PreparingRebalance, at the same generation, past the rebalance timeout."""
    a, b = stage.statics("a b", rebalance_timeout_ms=SHORT_MS)
    stage.form(a, b)
    c = stage.client("c", instance="C", rebalance_timeout_ms=SHORT_MS)
    c.join()
    admin = stage.client("admin")
    admin.leave(("", "C"))
    c.joined()
    stage.pass_time(LONGER_MS)
    admin.describe()
    a.heartbeat()
    b.heartbeat()
    a.join()
    a.waits()
    b.join()
    a.joined()
    b.joined()


@script()
def static_member_that_never_syncs_is_removed(stage: Stage) -> None:
    """KAFKA-12890: a member that joins and never syncs is removed after the rebalance timeout, static or not."""
    a, b = stage.statics("a b", rebalance_timeout_ms=SHORT_MS)
    stage.form(a, b, assign=False)
    a.sync({a: b"a", b: b"b"})
    a.synced()
    stage.until_members(1)
    a.heartbeat()
    b.heartbeat()
    b.sync()
    b.synced()
    a.describe()
    b2 = b.restarted("b2")
    b2.join()
    a.join()
    a.joined()
    b2.joined()


@script()
def silent_static_member_expires(stage: Stage) -> None:
    """The session timeout removes a static member; its instance id is free, and the others rebalance."""
    a, b = stage.client("a", instance="A"), stage.client("b", instance="B", session_timeout_ms=SHORT_MS)
    stage.form(a, b)
    stage.until_members(1)
    a.heartbeat()
    a.describe()
    b2 = b.restarted("b2", session_timeout_ms=60_000)
    b2.join()
    b2.waits()
    a.join()
    a.joined()
    b2.joined()


@script()
def last_static_member_expires(stage: Stage) -> None:
    """The group is Empty then; a member that comes back is a new member of a later generation."""
    (a,) = stage.statics("a", session_timeout_ms=SHORT_MS)
    stage.form(a)
    stage.until_state("Empty")
    a.describe()
    a2 = a.restarted("a2")
    a2.enter()


@script()
def static_leave_by_member_id_frees_the_instance(stage: Stage) -> None:
    """Leave by member id alone frees the instance id too."""
    a, b = stage.statics("a b")
    stage.form(a, b)
    b.leave((b.member_id, None))
    a.heartbeat()
    b2 = b.restarted("b2")
    b2.join()
    b2.waits()
    a.join()
    a.joined()
    b2.joined()
    b2.leave(version=2)
    a.heartbeat()


@script_for(5, 9)
def static_leave_by_instance(stage: Stage, version: int) -> None:
    """Leave by instance id with an empty member id removes the member: that is how an operator does it."""
    a, b = stage.statics("a b", version=version)
    stage.form(a, b)
    admin = stage.client("admin", version=version)
    admin.leave(("", "B"))
    b.heartbeat()
    a.heartbeat()
    a.describe()
    admin.leave(("", "A"))
    a.heartbeat()
    a.describe()


@script_for(5, 9)
def leave_batch(stage: Stage, version: int) -> None:
    """KAFKA-8221: an answer for each entry, as it was asked; a wrong one doesn't spoil the others."""
    a, b, c = stage.statics("a b c", version=version)
    d = stage.client("d", version=version)
    stage.form(a, b, c, d)
    admin = stage.client("admin", version=version)
    admin.leave(
        ("somebody", "A"),
        ("", "B"),
        ("", "B"),
        ("", "Z"),
        ("somebody", None),
        (d.member_id, None),
        (d.member_id, None),
        (c.member_id, "Z"),
        (a.member_id, "C"),
        ("", None),
    )
    a.describe()
    a.heartbeat()
    admin.leave((c.member_id, "C"), (a.member_id, "A"))
    a.describe()


@script()
def dynamic_leave_of_a_static_member(stage: Stage) -> None:
    """LeaveGroup v0-2 by a static member's id removes it; v3 with an instance id it never had doesn't."""
    (a,) = stage.statics("a", version=5)
    d = stage.client("d", version=5)
    stage.form(a, d)
    d.leave((d.member_id, "A"))
    d.leave((d.member_id, "Z"))
    a.leave(version=1)
    d.heartbeat()
    d.describe()


@script()
def static_leader_leaves(stage: Stage) -> None:
    """Unlike a restart, a leave rebalances."""
    a, b = stage.statics("a b")
    stage.form(a, b)
    a.leave((a.member_id, "A"))
    b.heartbeat()
    b.join()
    b.joined()
    b.sync({b: b"all"})
    b.synced()
    b.describe()


@script()
def leave_while_the_own_join_waits(stage: Stage) -> None:
    """A static member that leaves while its join waits: the join is UNKNOWN_MEMBER_ID."""
    a, b = stage.statics("a b")
    stage.form(a)
    b.join()
    admin = stage.client("admin")
    admin.leave(("", "B"))
    b.joined()
    a.join()
    a.joined()


@script()
def static_member_comes_back_as_a_dynamic_one(stage: Stage) -> None:
    """Without instance id and member id it is somebody new; its former seat stays until it expires."""
    a, b = stage.client("a", instance="A"), stage.client("b", instance="B", session_timeout_ms=2 * SHORT_MS)
    stage.form(a, b)
    b2 = b.restarted("b2", instance=None, session_timeout_ms=60_000)
    b2.join()
    b2.joined()
    b2.join()
    a.join()
    a.waits()
    # Completes when the former seat has expired.
    a.joined()
    b2.joined()


@script()
def static_follower_rejoins_with_its_id(stage: Stage) -> None:
    """A follower that rejoins in Stable with its id and the same protocols is answered at once, as a dynamic one."""
    a, b = stage.statics("a b", version=9)
    stage.form(a, b)
    b.join()
    b.joined()
    b.join(group_instance_id=None)
    b.joined()
    a.heartbeat()


@script()
def static_leader_rejoins_with_its_id(stage: Stage) -> None:
    """The leader that rejoins in Stable with its id causes a rebalance."""
    a, b = stage.statics("a b", version=9)
    stage.form(a, b)
    a.join()
    a.waits()
    b.heartbeat()
    b.join()
    b.joined()
    a.joined()


@script()
def static_follower_rejoins_with_other_metadata(stage: Stage) -> None:
    """With its id and other metadata a follower causes a rebalance; with an empty id (a restart) it doesn't."""
    a, b = stage.statics("a b", version=9)
    stage.form(a, b)
    b.join(protocols=protocol_list({"range": b"new"}))
    b.waits()
    a.heartbeat()
    a.join()
    a.joined()
    b.joined()


@script_for(5, 9)
def static_and_dynamic_members_in_one_group(stage: Stage, version: int) -> None:
    """A dynamic member's restart rebalances, a static one's doesn't."""
    a = stage.client("a", instance="A", version=version)
    d = stage.client("d", version=version)
    stage.form(a, d)
    a2 = a.restarted("a2")
    a2.enter()
    a2.sync()
    a2.synced()
    d.heartbeat()
    d2 = d.restarted("d2")
    d2.join()
    d2.joined()
    d2.join()
    a2.heartbeat()
    d.leave()
    a2.join()
    a2.joined()
    d2.joined()


@script()
def members_with_and_without_instance_in_an_old_leaders_list(stage: Stage) -> None:
    """KAFKA-14422: a leader of JoinGroup v4 or less gets members without instance ids."""
    d = stage.client("d", version=4)
    a = stage.client("a", instance="A", version=5)
    stage.form(d, a)
    d.describe()


@script()
def commits_of_static_members(stage: Stage) -> None:
    """KAFKA-14201: generation -1 with an instance id is checked in a live group and accepted in an empty one."""
    topic = stage.topic(TOPIC, 1)
    a = stage.client("a", instance="A", version=8)
    stage.form(a)
    a.commit(topic)
    a.commit(topic, member_id="", generation_id_or_member_epoch=-1)
    a.commit(topic, member_id="", group_instance_id="Z", generation_id_or_member_epoch=-1)
    a.commit(topic, member_id="", group_instance_id=None, generation_id_or_member_epoch=-1)
    a.commit(topic, member_id="somebody", group_instance_id=None, generation_id_or_member_epoch=-1)
    a.leave()
    a.commit(topic, member_id="", generation_id_or_member_epoch=-1)
    a.commit(topic, member_id="somebody", generation_id_or_member_epoch=-1)
    a.commit(topic, member_id="somebody", group_id=f"{stage.group}.new", generation_id_or_member_epoch=-1)
    a.describe(stage.group, f"{stage.group}.new")


@script()
def restart_while_another_has_not_synced(stage: Stage) -> None:
    """A restart in Stable is nothing to a member that hasn't fetched its assignment yet: it still gets it."""
    a, b, c = stage.statics("a b c")
    stage.form(a, b, c, assign=False)
    a.sync({a: b"a", b: b"b", c: b"c"})
    a.synced()
    c2 = c.restarted("c2")
    c2.enter()
    b.sync()
    b.synced()
    c2.sync()
    c2.synced()
    a.heartbeat()


@script()
def restart_by_another_client(stage: Stage) -> None:
    """Describe goes on naming the client that had the seat first."""
    a, b = stage.statics("a b", client_id="first")
    stage.form(a, b)
    b2 = b.restarted("b2", client_id="second")
    b2.enter()
    b2.describe()
