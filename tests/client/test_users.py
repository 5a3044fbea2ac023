"""Users of SCRAM over the network: a server's refusal is an error of its own, whatever part of the answer has it."""

from __future__ import annotations

import pytest

from coordinator.client.client import Client
from coordinator.client.errors import Refused
from coordinator.client.users import remove_credential, set_credential, users_of
from schemas.errors import ErrorCode
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure

SCRAM_SHA_256 = 1
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}


def test_a_credential_is_set_and_removed() -> None:
    """A removal says whether there was one; too few iterations are refused."""
    with Tenure({}) as tenure, Client(tenure.bootstrap, WITHIN_S) as client:
        set_credential(client, "alice", SCRAM_SHA_256, salt=b"salt", salted_password=bytes(32), iterations=4_096)
        assert users_of(client) == {"alice": {SCRAM_SHA_256: 4_096}}
        assert remove_credential(client, "alice", SCRAM_SHA_256)
        assert not remove_credential(client, "alice", SCRAM_SHA_256)
        with pytest.raises(Refused, match="user 'alice': UNACCEPTABLE_CREDENTIAL"):
            set_credential(client, "alice", SCRAM_SHA_256, salt=b"salt", salted_password=bytes(32), iterations=1)


def test_a_client_without_the_right_is_refused() -> None:
    """It may neither list nor change users."""
    with Tenure(AUTHORIZER) as tenure, Client(tenure.bootstrap, WITHIN_S) as client:
        for refused in (users_of, lambda asked: remove_credential(asked, "alice", SCRAM_SHA_256)):
            with pytest.raises(Refused) as raised:
                refused(client)
            assert raised.value.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
