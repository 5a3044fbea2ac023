"""docker/docker-compose.cluster.yml: nodes are killed, stopped, frozen and cut off, and no partition moves.

House rule: every fact comes from the services themselves: the nodes' logs and the clients.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.compose.project import CONSUMERS, GROUP, ClusterStory, JsonLine

pytestmark = pytest.mark.compose

MOVED = ("rebalance_started", "member_expired", "member_fenced", "member_left")
PARTITIONS = range(6)


def of_group(events: list[JsonLine], *names: str) -> list[JsonLine]:
    """Return the group's events of these names."""
    return [event for event in events if event["event"] in names and event.get("group") == GROUP]


def test_the_harm_was_done(cluster_story: ClusterStory) -> None:
    """The node of the group was killed twice, stopped, frozen and cut off, and each time another node loaded it."""
    harmed = [line for line in cluster_story.harm if line["did"] == "harmed"]
    assert Counter(line["how"] for line in harmed if line["service"].startswith("node-")) == {
        "killed": 2,
        "stopped": 1,
        "frozen": 1,
        "cut off": 1,
    }
    assert [line["how"] for line in harmed if line["service"].startswith("etcd-")] == ["killed"]
    loaded = of_group(cluster_story.after, "group_loaded")
    assert len(loaded) >= 5
    assert {(line["state"], line["members"]) for line in loaded} == {("Stable", 3)}


def test_no_rebalance(cluster_story: ClusterStory) -> None:
    """No node starts a rebalance, and no member expires, until a session timeout after the last harm."""
    generation = of_group(cluster_story.before, "rebalance_completed")[-1]["generation"]
    assert of_group(cluster_story.after, *MOVED) == []
    assert {line["generation"] for line in cluster_story.after if line.get("group") == GROUP} == {generation}


def test_every_consumer_has_its_seat(cluster_story: ClusterStory) -> None:
    """No consumer lost a partition, and only the one that was killed has another member id."""
    first, last = cluster_story.harm[0], cluster_story.harm[-1]
    assert (first["did"], last["did"]) == ("found", "done")
    restarted = {line["consumer"] for line in cluster_story.harm if "consumer" in line}
    assert {name for name in CONSUMERS if first["seats"][name] != last["seats"][name]} == restarted
    for consumer, lines in cluster_story.told.items():
        assert [line for line in lines if line["event"] in {"revoked", "lost"}] == [], consumer
        assigned = [line["partitions"] for line in lines if line["event"] == "assigned"]
        assert assigned == assigned[:1] * (2 if consumer in restarted else 1)


def test_no_commit_is_lost(cluster_story: ClusterStory) -> None:
    """Each consumer always read the offset that it had committed, or a higher one, also after its own restart."""
    committed: dict[int, list[int]] = {}
    for lines in cluster_story.told.values():
        assert [line for line in lines if line["event"] == "went_back"] == []
        for line in lines:
            if line["event"] == "committed":
                committed.setdefault(line["partition"], []).append(line["offset"])
    assert sorted(committed) == list(PARTITIONS)
    for offsets in committed.values():
        assert offsets == sorted(set(offsets))
