"""Unmodified clients log in by each mechanism and join; a wrong password is the same error as on Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

import pytest
from _pytest.mark import ParameterSet
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.interop.sasl_clients import CLIENTS, JOINED, TOPIC, USER, outcome
from tests.support.apache import ApacheKafka
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure
from tests.support.tokens import jwk, jwks, token

LISTENERS = {"OPEN": "PLAINTEXT", "SASL": "SASL_PLAINTEXT"}
MODULES = "org.apache.kafka.common.security"
PROPERTIES = f"""\
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
listener.name.sasl.plain.sasl.jaas.config={MODULES}.plain.PlainLoginModule required user_{USER}="right";
listener.name.sasl.scram-sha-256.sasl.jaas.config={MODULES}.scram.ScramLoginModule required;
listener.name.sasl.scram-sha-512.sasl.jaas.config={MODULES}.scram.ScramLoginModule required;
listener.name.sasl.oauthbearer.sasl.jaas.config={MODULES}.oauthbearer.OAuthBearerLoginModule required;
listener.name.sasl.oauthbearer.sasl.server.callback.handler.class=\\
    {MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler
listener.name.sasl.sasl.oauthbearer.expected.audience=kafka
group.initial.rebalance.delay.ms=0
"""
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
OFTEN = {
    ("aiokafka", "PLAIN"),
    ("aiokafka", "SCRAM-SHA-256"),
    ("confluent-kafka", "OAUTHBEARER"),
    ("kafka-python", "SCRAM-SHA-512"),
}
"""`make test` has each client and each mechanism once."""


def with_marks(cases: Iterable[tuple[str, str]]) -> list[ParameterSet]:
    """The cases as parameters; `make test-long` has those that aren't in OFTEN."""
    return [pytest.param(*case, marks=() if case in OFTEN else pytest.mark.long) for case in cases]


@pytest.fixture(scope="module")
def properties(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The properties of both servers."""
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_bytes(jwks(jwk("rsa")))
    return f"{PROPERTIES}listener.name.sasl.sasl.oauthbearer.jwks.endpoint.url={keys.as_uri()}\n"


def add_user(server: ApacheKafka | Tenure) -> None:
    """Add the user of SCRAM, as an administrator does."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap_of("OPEN"), "log_level": 0})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        one = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4_096), b"right")
        for future in admin.alter_user_scram_credentials([one]).values():
            future.result(WITHIN_S)


@pytest.fixture(scope="module")
def tenure(properties: str) -> Iterator[Tenure]:
    """Tenure."""
    with Tenure({"tenure.topics": f"{TOPIC}:3"}, listeners=LISTENERS, properties=properties) as server:
        add_user(server)
        yield server


@pytest.fixture(scope="module")
def kafka(java: None, properties: str) -> Iterator[ApacheKafka]:
    """Apache Kafka."""
    with ApacheKafka(listeners=LISTENERS, properties=properties) as server:
        add_user(server)
        yield server


def secret(mechanism: str, password: str) -> str:
    """The password; of OAUTHBEARER a token of the provider, or of a stranger if the password is wrong."""
    if mechanism != "OAUTHBEARER":
        return password
    return token("rsa" if password == "right" else "another-rsa", kid="rsa", aud="kafka")


@pytest.mark.interop
@pytest.mark.parametrize(("client", "mechanism"), with_marks(product(CLIENTS, MECHANISMS)))
def test_a_client_logs_in_and_joins(tenure: Tenure, client: str, mechanism: str) -> None:
    """With the right password it gets partitions."""
    bootstrap, group = tenure.bootstrap_of("SASL"), f"{client}-{mechanism}"
    assert outcome(client, bootstrap, mechanism, secret(mechanism, "right"), group) == JOINED


# kafka-python did not end within the time of a test. With OAUTHBEARER aiokafka takes the challenge for an answer and
# goes on with Metadata, which Kafka reads and answers with an error.
SAYING_SO = [("confluent-kafka", each) for each in MECHANISMS] + [("aiokafka", each) for each in MECHANISMS[:-1]]


@pytest.mark.interop
@pytest.mark.parametrize(("client", "mechanism"), with_marks(SAYING_SO))
def test_a_wrong_password_is_an_error(tenure: Tenure, client: str, mechanism: str) -> None:
    """The client doesn't join, and says so."""
    said = outcome(client, tenure.bootstrap_of("SASL"), mechanism, secret(mechanism, "wrong"), "wrong")
    assert said not in {JOINED, "nothing"}


@pytest.mark.oracle
@pytest.mark.parametrize(("client", "mechanism"), SAYING_SO)
def test_a_wrong_password_is_the_same_error(kafka: ApacheKafka, tenure: Tenure, client: str, mechanism: str) -> None:
    """A user can't tell by the client's error which server refused."""
    wrong = secret(mechanism, "wrong")
    theirs, ours = (outcome(client, each.bootstrap_of("SASL"), mechanism, wrong, "wrong") for each in (kafka, tenure))
    assert ours == theirs
