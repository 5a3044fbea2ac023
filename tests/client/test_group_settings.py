"""A group's own settings over the network: the server's reason is part of the error."""

from __future__ import annotations

import pytest

from coordinator.client.client import Client
from coordinator.client.errors import Refused
from coordinator.client.group_settings import change_settings, settings_of
from schemas.errors import ErrorCode
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure


def test_only_own_settings_are_the_groups() -> None:
    """Not those of the server, which a description has too. Without a value a setting goes."""
    with Tenure({"group.consumer.session.timeout.ms": "50000"}) as tenure, Client(tenure.bootstrap, WITHIN_S) as client:
        assert settings_of(client, "g") == {}
        change_settings(client, "g", {"target.group.size": "5", "expected.instance.ids": "b,a=1"})
        assert settings_of(client, "g") == {"expected.instance.ids": "b,a=1", "target.group.size": "5"}
        assert settings_of(client, "h") == {}
        change_settings(client, "g", {"target.group.size": None, "expected.instance.ids": None})
        assert settings_of(client, "g") == {}


def test_a_refusal_has_the_servers_reason() -> None:
    """Of a value, and of a client that may not change or see the settings."""
    authorizer = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    said = r"settings of group 'g': .*target\.group\.size.*: INVALID_CONFIG"
    with (
        Tenure({}) as tenure,
        Client(tenure.bootstrap, WITHIN_S) as client,
        pytest.raises(Refused, match=said),
    ):
        change_settings(client, "g", {"target.group.size": "five"})
    with Tenure(authorizer) as tenure, Client(tenure.bootstrap, WITHIN_S) as client:
        for refused in (settings_of, lambda asked, group: change_settings(asked, group, {"target.group.size": "5"})):
            with pytest.raises(Refused, match=r"^settings of group 'g': GROUP_AUTH") as raised:
                refused(client, "g")
            assert raised.value.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
