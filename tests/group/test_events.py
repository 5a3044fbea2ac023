"""Events: each one of a client states what the runtime has to know of it."""

from __future__ import annotations

from typing import get_args

import pytest

from coordinator.group.coordinator import Coordinator
from coordinator.group.events import ClientEvent, Event, RequestEvent


def test_an_event_of_a_client_without_flags_is_no_class() -> None:
    """Flags that are forgotten fail at the import, in place of a request that goes on while the log fails."""
    with pytest.raises(AssertionError, match="Forgets states no flags"):
        type("Forgets", (ClientEvent,), {})


def test_the_unions_name_each_event() -> None:
    """The events of clients are those that the core answers, and the core handles each event."""
    # A dataclass with slots replaces its class: the former one stays a subclass until it is collected.
    of_groups = [each for each in ClientEvent.__subclasses__() if each.__module__ == ClientEvent.__module__]
    assert {each.__name__ for each in of_groups if hasattr(each, "flags")} == {
        each.__name__ for each in get_args(RequestEvent)
    }
    assert set(Coordinator._HANDLERS) == set(get_args(Event))
