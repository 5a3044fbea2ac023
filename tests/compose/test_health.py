"""The health check of the image, without an image: what it says of servers with TLS and SASL, and of none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.certificates import Certificates
from tests.support.patience import WITHIN_S
from tests.support.ports import refusing_port
from tests.support.tenure import Tenure

HEALTH = Path(__file__).parents[2] / "docker" / "health.py"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def health(listeners: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the check with these variables."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith(("KAFKA_", "TENURE_"))}
    return subprocess.run(
        [sys.executable, str(HEALTH)],
        env=clean | {"KAFKA_LISTENERS": listeners, "PYTHONPATH": str(HEALTH.parents[1])} | environment,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL"])
@pytest.mark.parametrize("client_auth", ["none", "required"])
def test_a_server_that_answers_is_well(certificates: Certificates, protocol: str, client_auth: str) -> None:
    """Whatever a listener asks of its clients, the check needs neither a login nor a certificate."""
    properties = f"""ssl.keystore.type=PEM
ssl.keystore.location={certificates.server}
ssl.truststore.type=PEM
ssl.truststore.location={certificates.ca}
listener.name.one.ssl.client.auth={client_auth}
listener.name.one.sasl.enabled.mechanisms=PLAIN
listener.name.one.plain.sasl.jaas.config={PLAIN} user_alice="secret";
"""
    with Tenure(listeners={"ONE": protocol}, properties=properties) as server:
        mapped = f"ONE:{protocol}"
        done = health(f"ONE://{server.bootstrap}", KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=mapped)
        assert (done.returncode, done.stderr) == (0, "")


def test_no_server_is_one_line() -> None:
    """The line has the address and the reason."""
    with refusing_port() as port:
        done = health(f"SSL://127.0.0.1:{port}")
    assert done.returncode == 1
    assert done.stderr == f"127.0.0.1:{port}: Connection refused\n"
