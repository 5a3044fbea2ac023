"""Steps of one member, as values. `test_random` takes steps of whole groups."""

from __future__ import annotations

import pytest

from coordinator.group.consumer.group import SETTLED, UNKNOWN, ConsumerMember
from coordinator.group.consumer.reconcile import Aim, Owned, reconcile
from tests.group.consumer.play import topic_id

T = topic_id("t")
AIM = Aim(epoch=5, target={T: frozenset({0})}, topic_ids={T}, holders={}, changed=False)


@pytest.mark.parametrize("owned", [None, {T: frozenset({0})}], ids=["unsaid", "some"])
def test_a_state_of_a_later_version_is_left_only_with_nothing(owned: Owned | None) -> None:
    """A member whose state nobody here can read is fenced unless it says that it owns nothing."""
    member = ConsumerMember("m", epoch=4, state=UNKNOWN)
    assert reconcile(member, AIM, owned) is None
    goes_on = reconcile(member, AIM, {})
    assert goes_on is not None
    assert (goes_on.epoch, goes_on.state, goes_on.assigned) == (5, SETTLED, {T: {0: 5}})
