"""Dynamic members and rebalances: KIP-394, heartbeats and rejoins in each state, timeouts, the vote."""

from __future__ import annotations

from tests.oracle.stage import LONGER_MS, SHORT_MS, Stage, protocol_list, script, script_for

TOPIC = "dynamic"


@script_for(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
def dynamic_member_joins(stage: Stage, version: int) -> None:
    """KAFKA-7824: from v4 on the first join gets MEMBER_ID_REQUIRED and an id; before, it is admitted at once."""
    a = stage.client("a", version=version)
    a.join()
    a.joined()
    a.describe()
    a.list_groups()
    if version >= 4:
        a.join()
        a.joined()
    a.sync({a: b"a"})
    a.synced()
    a.heartbeat()
    a.describe()
    a.leave()
    a.describe()


@script()
def null_client_id(stage: Stage) -> None:
    """A request without client id: the member id begins with nothing, and Describe's client id is empty."""
    a = stage.client("a", client_id=None)
    a.enter()
    b = stage.client("b", client_id=None, instance="B")
    b.join()
    a.describe()
    empty = stage.client("empty", client_id="", group=f"{stage.group}.empty")
    empty.enter()


@script_for(0, 3, 4, 5, 9)
def three_members(stage: Stage, version: int) -> None:
    """The leader's answer lists all members with their metadata, the others' none; each gets its own assignment."""
    a, b, c = (
        stage.client(name, version=version, protocols={"range": name.encode(), "sticky": b"s"}) for name in "abc"
    )
    stage.form(a, b, c)
    for member in (a, b, c):
        member.heartbeat()
    a.describe()
    c.leave()
    a.heartbeat()
    b.join()
    b.waits()
    a.join()
    a.joined()
    b.joined()


@script()
def members_of_all_versions(stage: Stage) -> None:
    """Old and new clients in one group: each is answered in its own version."""
    a, b, c = stage.client("a", version=0), stage.client("b", version=4), stage.client("c", version=9)
    stage.form(a, b, c)
    a.describe()
    a.describe(version=0)
    a.describe(version=3)
    a.describe(version=4)


@script()
def members_without_assignment(stage: Stage) -> None:
    """A member that the leader left out gets an empty assignment; an assignment for nobody is ignored."""
    a, b = stage.clients("a b")
    stage.form(a, b, assign=False)
    stranger = stage.client("stranger")
    stranger.member_id = "stranger"
    a.sync({a: b"a", stranger: b"s"})
    b.sync()
    a.synced()
    b.synced()
    b.describe()


@script()
def follower_syncs_first(stage: Stage) -> None:
    """A follower's sync waits for the leader's."""
    a, b = stage.clients("a b")
    stage.form(a, b, assign=False)
    b.sync({a: b"no", b: b"no"})
    b.waits()
    a.describe()
    a.sync({a: b"a", b: b"b"})
    a.synced()
    b.synced()


@script()
def pending_member_does_not_disturb_a_stable_group(stage: Stage) -> None:
    """A pending id rebalances nothing, is not described, and can be given back."""
    a, b = stage.clients("a b")
    stage.form(a)
    b.join()
    b.joined()
    a.heartbeat()
    a.describe()
    b.leave()
    b.join()
    b.joined()
    a.heartbeat()


@script()
def pending_member_blocks_a_rebalance_until_it_joins(stage: Stage) -> None:
    """A rebalance waits for pending members as for all others."""
    a, b, c = stage.clients("a b c")
    stage.form(a)
    b.join()
    b.joined()
    c.join()
    c.joined()
    b.join()
    a.join()
    a.waits()
    stage.client("admin").describe()
    c.join()
    a.joined()
    b.joined()
    c.joined()


@script()
def pending_member_blocks_a_rebalance_until_it_leaves(stage: Stage) -> None:
    """KAFKA-7909: a pending member that gives its id back completes the rebalance at once."""
    a, b, c = stage.clients("a b c")
    stage.form(a)
    c.join()
    c.joined()
    b.join()
    b.joined()
    b.join()
    a.join()
    a.waits()
    c.leave()
    a.joined()
    b.joined()


@script()
def pending_member_blocks_a_rebalance_until_it_expires(stage: Stage) -> None:
    """KAFKA-7909: a pending member lapses after its session timeout, and the rebalance completes."""
    a, b = stage.clients("a b")
    c = stage.client("c", session_timeout_ms=SHORT_MS)
    stage.form(a)
    c.join()
    c.joined()
    b.join()
    b.joined()
    b.join()
    a.join()
    a.joined()
    b.joined()
    c.join()
    c.joined()


@script()
def heartbeats_by_state(stage: Stage) -> None:
    """KAFKA-10134: in PreparingRebalance REBALANCE_IN_PROGRESS, in CompletingRebalance and Stable NONE."""
    a, b = stage.clients("a b")
    a.enter()
    a.heartbeat()
    a.heartbeat(generation_id=0)
    a.sync({a: b"a"})
    a.synced()
    a.heartbeat()
    b.join()
    b.joined()
    b.join()
    a.heartbeat()
    a.heartbeat(generation_id=0)
    a.join()
    a.joined()
    b.joined()
    a.heartbeat()
    b.heartbeat()
    a.leave()
    b.leave()
    a.heartbeat()


@script_for(4, 9)
def rejoin_in_stable(stage: Stage, version: int) -> None:
    """The same protocols: a follower is answered at once, the leader rebalances; other metadata rebalances."""
    a, b = stage.clients("a b", version=version, protocols={"range": b"1", "sticky": b"2"})
    stage.form(a, b)
    b.join()
    b.joined()
    a.heartbeat()
    b.sync()
    b.synced()
    b.join(protocols=protocol_list({"range": b"1", "sticky": b"3"}))
    b.waits()
    a.heartbeat()
    a.join()
    a.joined()
    b.joined()
    a.sync({a: b"a", b: b"b"})
    a.synced()
    b.sync()
    b.synced()
    a.join()
    a.waits()
    b.heartbeat()
    b.join()
    b.joined()
    a.joined()


@script()
def rejoin_with_the_same_protocols_in_another_order(stage: Stage) -> None:
    """A rejoin with another order of protocols is another preference: it rebalances."""
    a, b = stage.clients("a b", protocols=["range", "sticky"])
    stage.form(a, b)
    b.join(protocols=protocol_list({"sticky": b"", "range": b""}))
    b.waits()
    a.heartbeat()
    a.join()
    a.joined()
    b.joined()


@script_for(4, 9)
def rejoin_in_completing(stage: Stage, version: int) -> None:
    """The same metadata is answered at once, and only the leader gets the members; other metadata starts anew."""
    a, b = stage.clients("a b", version=version)
    stage.form(a, b, assign=False)
    b.join()
    b.joined()
    a.join()
    a.joined()
    b.sync()
    a.join(protocols=protocol_list({"range": b"new"}))
    b.synced()
    a.waits()
    b.join()
    b.joined()
    a.joined()


@script()
def sync_by_state(stage: Stage) -> None:
    """PreparingRebalance: REBALANCE_IN_PROGRESS; Stable: the assignment again."""
    a, b = stage.clients("a b")
    stage.form(a)
    a.sync()
    a.synced()
    b.join()
    b.joined()
    b.join()
    a.sync({a: b"other"})
    a.synced()
    a.sync(generation_id=0)
    a.synced()


@script_for(0, 4, 9)
def waiting_join_outlives_the_session_timeout(stage: Stage, version: int) -> None:
    """A member that waits in Join isn't held to its session timeout."""
    a = stage.client("a")
    b = stage.client("b", version=version, session_timeout_ms=SHORT_MS, rebalance_timeout_ms=60_000)
    stage.form(a)
    if version >= 4:
        b.join()
        b.joined()
    b.join()
    stage.pass_time(LONGER_MS)
    b.waits()
    a.join()
    a.joined()
    b.joined()


@script()
def waiting_sync_outlives_the_session_timeout(stage: Stage) -> None:
    """A member that waits in Sync isn't held to its session timeout."""
    a, b = stage.client("a"), stage.client("b", session_timeout_ms=SHORT_MS)
    stage.form(a, b, assign=False)
    b.sync()
    stage.pass_time(LONGER_MS)
    b.waits()
    a.sync({a: b"a", b: b"b"})
    b.synced()
    a.synced()


@script()
def rebalance_timeout_is_the_largest_of_the_members(stage: Stage) -> None:
    """The longest rebalance timeout counts for all members; a member that misses it is removed."""
    a, b = stage.client("a", rebalance_timeout_ms=4 * SHORT_MS), stage.client("b", rebalance_timeout_ms=SHORT_MS)
    stage.form(a, b)
    c = stage.client("c", rebalance_timeout_ms=SHORT_MS)
    c.join()
    c.joined()
    c.join()
    stage.pass_time(LONGER_MS)
    c.waits()
    a.describe()
    c.joined()
    a.heartbeat()
    b.heartbeat()
    c.describe()


@script()
def rebalance_timeout_of_version_0_is_its_session_timeout(stage: Stage) -> None:
    """JoinGroup v0 has no rebalance timeout: the session timeout counts."""
    a = stage.client("a", version=1, rebalance_timeout_ms=SHORT_MS)
    stage.form(a)
    b = stage.client("b", version=0, session_timeout_ms=SHORT_MS)
    b.join()
    b.joined()
    a.heartbeat()


@script()
def member_that_never_syncs_is_removed(stage: Stage) -> None:
    """KAFKA-12890: even while it heartbeats, a member that doesn't sync in time is removed, and the group goes on."""
    a, b = stage.clients("a b", rebalance_timeout_ms=2 * SHORT_MS)
    stage.form(a, b, assign=False)
    a.sync({a: b"a", b: b"b"})
    a.synced()
    b.heartbeat()
    stage.until_members(1)
    b.heartbeat()
    b.sync()
    b.synced()
    a.heartbeat()
    a.join()
    a.joined()


@script()
def leader_that_never_syncs_is_removed(stage: Stage) -> None:
    """KAFKA-12890: without the leader's assignment the waiting followers get REBALANCE_IN_PROGRESS."""
    a, b = stage.clients("a b", rebalance_timeout_ms=SHORT_MS)
    stage.form(a, b, assign=False)
    b.sync()
    b.synced()
    a.heartbeat()
    b.join()
    b.joined()


@script()
def nobody_syncs(stage: Stage) -> None:
    """Nobody syncs: the group is Empty after the rebalance timeout."""
    a, b = stage.clients("a b", rebalance_timeout_ms=SHORT_MS)
    stage.form(a, b, assign=False)
    stage.until_state("Empty")
    a.sync({a: b"a"})
    a.synced()
    b.heartbeat()
    b.describe()


@script()
def silent_member_expires(stage: Stage) -> None:
    """A member's session timeout removes it; the others rebalance."""
    a, b = stage.client("a"), stage.client("b", session_timeout_ms=SHORT_MS)
    stage.form(a, b)
    stage.until_members(1)
    b.heartbeat()
    a.heartbeat()
    a.join()
    a.joined()


@script()
def member_that_does_not_rejoin_expires_during_the_rebalance(stage: Stage) -> None:
    """Its session timeout counts during a rebalance, too: the rebalance completes without it."""
    a, b = stage.client("a"), stage.client("b", session_timeout_ms=2 * SHORT_MS)
    stage.form(a, b)
    a.join()
    a.waits()
    a.joined()
    b.heartbeat()


@script()
def heartbeat_in_preparing_renews_the_session(stage: Stage) -> None:
    """KAFKA-10134: REBALANCE_IN_PROGRESS renews the session."""
    a, b = stage.client("a"), stage.client("b", session_timeout_ms=2_000)
    stage.form(a, b)
    a.join()
    stage.pass_time(1_200)
    b.heartbeat()
    stage.pass_time(1_200)
    b.heartbeat()
    a.waits()
    b.join()
    a.joined()
    b.joined()


@script()
def sync_in_stable_renews_the_session(stage: Stage) -> None:
    """On 3.9 a sync in Stable restarts the session clock."""
    a, b = stage.client("a"), stage.client("b", session_timeout_ms=2_000)
    stage.form(a, b)
    stage.pass_time(1_200)
    b.sync()
    b.synced()
    stage.pass_time(1_200)
    b.heartbeat()
    a.heartbeat()


@script()
def commit_renews_the_session(stage: Stage) -> None:
    """A commit of a member counts as a sign of life."""
    topic = stage.topic(TOPIC, 1)
    a, b = stage.client("a"), stage.client("b", session_timeout_ms=2_000)
    stage.form(a, b)
    stage.pass_time(1_200)
    b.commit(topic)
    stage.pass_time(1_200)
    b.heartbeat()
    a.heartbeat()


@script()
def generation_grows_when_the_group_empties(stage: Stage) -> None:
    """Generation 1, everybody leaves, somebody joins: generation 3."""
    a, b = stage.clients("a b")
    a.enter()
    a.leave()
    a.describe()
    b.enter()


@script()
def leave_by_state(stage: Stage) -> None:
    """Leaving rebalances in every state; in CompletingRebalance, waiting syncs get REBALANCE_IN_PROGRESS."""
    a, b, c = stage.clients("a b c")
    stage.form(a, b, c, assign=False)
    b.sync()
    c.leave()
    b.synced()
    b.join()
    a.leave()
    b.joined()
    b.sync({b: b"b"})
    b.synced()
    a.leave()
    a.describe()


@script()
def leave_while_ones_join_waits(stage: Stage) -> None:
    """The waiting join is answered UNKNOWN_MEMBER_ID."""
    a, b = stage.clients("a b")
    stage.form(a)
    b.join()
    b.joined()
    b.join()
    admin = stage.client("admin")
    admin.leave((b.member_id, None))
    b.joined()
    a.join()
    a.joined()


@script()
def last_waiting_member_leaves(stage: Stage) -> None:
    """The only member that had not rejoined leaves: the others' joins are answered at once."""
    a, b = stage.clients("a b")
    stage.form(a, b)
    a.join()
    a.waits()
    b.leave()
    a.joined()


@script()
def closed_connection_removes_nobody(stage: Stage) -> None:
    """A member whose connection is gone is a member until its session times out, also while its join waits."""
    a, b = stage.clients("a b")
    stage.form(a, b)
    b.reconnect()
    stage.barrier()
    b.heartbeat()
    a.join()
    a.reconnect()
    stage.barrier()
    b.heartbeat()
    b.join()
    b.joined()
    b.describe()


@script_for(0, 3)
def old_clients_join_again_and_again(stage: Stage, version: int) -> None:
    """KAFKA-9232: up to v3 each join without id makes a member; those that are gone time out of the rebalance."""
    a = stage.client("a", version=5)
    stage.form(a)
    ghosts = [
        stage.client(name, version=version, session_timeout_ms=SHORT_MS, rebalance_timeout_ms=SHORT_MS)
        for name in ("g1", "g2", "g3")
    ]
    for ghost in ghosts:
        ghost.join()
        ghost.reconnect()
    a.describe()
    a.join()
    a.joined()
    a.sync({a: b"a"})
    a.synced()
    stage.until_members(1)
    a.heartbeat()


@script_for(0, 5, 9)
def protocol_vote(stage: Stage, version: int) -> None:
    """Of the protocols that all members list each votes for its first; most votes win."""
    a = stage.client("a", version=version, protocols=["range", "roundrobin", "sticky"])
    b = stage.client("b", version=version, protocols=["sticky", "roundrobin"])
    c = stage.client("c", version=version, protocols=["sticky", "range", "roundrobin"])
    stage.form(a, b, c)
    a.describe()


@script()
def protocol_vote_when_a_protocol_goes(stage: Stage) -> None:
    """A member that lists fewer leaves fewer to choose from; when it leaves, they count again."""
    a = stage.client("a", protocols=["range", "sticky"])
    b = stage.client("b", protocols=["sticky"])
    stage.form(a, b)
    c = stage.client("c", protocols=["range"])
    c.join()
    c.joined()
    b.leave()
    a.join()
    a.joined()


@script()
def protocol_vote_ties(stage: Stage) -> None:
    """As many votes for one as for another: Kafka takes the first in a hash map's order, whoever leads."""
    for one, other in (
        ("range", "roundrobin"),
        ("range", "sticky"),
        ("roundrobin", "sticky"),
        ("range", "cooperative-sticky"),
    ):
        for first, second in ((one, other), (other, one)):
            group = f"{stage.group}.{first}.{second}"
            a = stage.client("a", group=group, instance="A", protocols=[first, second])
            b = stage.client("b", group=group, instance="B", protocols=[second, first])
            stage.form(a, b, assign=False)


@script()
def another_protocol_type(stage: Stage) -> None:
    """A group of Kafka Connect or of anything else; once Empty it takes any type."""
    a = stage.client("a", version=9, protocol_type="connect", protocols={"sessioned": b"c"})
    stage.form(a)
    a.describe()
    a.list_groups()
    a.leave()
    a.describe()
    b = stage.client("b", version=9)
    stage.form(b)
    b.describe()


@script_for(8, 9)
def reasons(stage: Stage, version: int) -> None:
    """KIP-800: with a reason, or a null one, nothing else changes (KAFKA-14496)."""
    a, b = stage.clients("a b", version=version)
    a.join(reason="first start")
    a.joined()
    a.join(reason="with its id")
    a.joined()
    a.sync({a: b"a"})
    a.synced()
    a.join(reason=None)
    a.joined()
    b.join(reason="")
    b.joined()


@script()
def join_reason_of_ours(stage: Stage) -> None:
    """KIP-423's tagged field, which Kafka doesn't know, changes nothing."""
    a = stage.client("a", instance="A", version=9)
    stage.form(a)
    again = a.restarted("again")
    again.join(join_reason=0)
    again.joined()
    again.join(join_reason=2)
    again.joined()
