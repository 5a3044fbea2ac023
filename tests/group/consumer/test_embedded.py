"""The embedded consumer protocol: the subscriptions and assignments of classic members."""

from __future__ import annotations

import pytest

from coordinator.group.consumer import embedded
from coordinator.group.consumer.embedded import Unreadable, read_subscription
from tests.group.consumer.play import subscribed


def test_a_subscription_of_too_many_topics_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """To read it would keep the server from its other work."""
    monkeypatch.setattr(embedded, "TOPICS_READ_MAX", 2)
    assert read_subscription(subscribed("t", "u")).topics == {"t", "u"}
    with pytest.raises(Unreadable):
        read_subscription(subscribed("t", "u", "v"))
