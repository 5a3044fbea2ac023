"""Settings that a start warns of."""

from __future__ import annotations

import pytest

from coordinator.config import load
from coordinator.server.risks import risks

ACLS = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
OPEN = "listeners=PLAINTEXT://0.0.0.0:9092"


@pytest.mark.parametrize(
    ("sets", "begins"),
    [
        ((OPEN,), ["listeners: PLAINTEXT://0.0.0.0:9092 is open to every network"]),
        (("listeners=PLAINTEXT://:9092",), ["listeners: PLAINTEXT://:9092 is open to every network"]),
        (("listeners=PLAINTEXT://[::]:9092",), ["listeners: PLAINTEXT://[::]:9092 is open to every network"]),
        (("ssl.client.auth=required",), ["ssl.client.auth=required has no effect: "]),
        ((ACLS,), ["super.users is empty: "]),
        ((OPEN, ACLS), ["super.users is empty: "]),
        ((), []),
        (("listeners=PLAINTEXT://10.0.0.1:9092",), []),
        ((OPEN, ACLS, "super.users=User:admin"), []),
        ((ACLS, "allow.everyone.if.no.acl.found=true"), []),
    ],
)
def test_a_start_warns_of_what_an_operator_may_not_have_meant(sets: tuple[str, ...], begins: list[str]) -> None:
    """One text names the setting; an address of one network, a super user or an open default needs none."""
    texts = list(risks(load(sets=sets)[0]))
    assert len(texts) == len(begins)
    assert all(text.startswith(begin) for text, begin in zip(texts, begins, strict=True))
