"""docker/docker-compose.secure.yml: each service has its own secrets, and may do what it needs and nothing else."""

from __future__ import annotations

import pytest

from tests.compose.project import CONSUMERS, MADE, Story, docker
from tests.support.tenure import READY_LINE

pytestmark = pytest.mark.compose

WRITE = f"""
import json
from confluent_kafka import Producer
producer = Producer({{"bootstrap.servers": "coordinator:9093", **json.load(open("{MADE}/consumer.json"))}})
producer.produce("orders", b"forged", on_delivery=lambda error, _: print(error.name()))
producer.flush()
"""


def test_no_service_has_the_secrets_of_another(secure_story: Story) -> None:
    """The CA's key is in no running container, and a client has the CA's certificate and its own login alone."""
    expected = {
        "coordinator": {"ca.pem", "server.pem", "server.properties", "admin.properties"},
        "producer": {"ca.pem", "producer.json"},
        **{consumer: {"ca.pem", "consumer.json"} for consumer in CONSUMERS},
    }
    project = secure_story.project
    # The story stops the producer.
    project.compose("start", "producer")
    for service, files in expected.items():
        container = project.container(service)
        assert set(docker("exec", container, "ls", "-A", MADE).stdout.split()) == files
        assert docker("exec", container, "find", MADE, "-type", "f", "-perm", "/077").stdout == ""


def test_the_coordinator_speaks_nothing_but_tls_with_a_login(secure_story: Story) -> None:
    """Its one listener is that of SASL_SSL, and a command without TLS or without the right password gets no answer."""
    project = secure_story.project
    ready = READY_LINE.search(docker("logs", project.container("coordinator")).stdout)
    assert ready is not None
    assert " listen=[::]:9093 " in f"{ready.group()} "
    listed = ("exec", "-T", "coordinator", "tenure", "groups", "list", "--bootstrap-server", "coordinator:9093")
    plain = project.compose(*listed, check=False)
    assert plain.returncode == 5, plain.stdout + plain.stderr
    forged = f"sed s/password=.*/'password=\"wrong\";'/ {MADE}/admin.properties >/data/forged.properties"
    project.compose("exec", "-T", "coordinator", "sh", "-c", forged)
    wrong = project.compose(*listed, "--command-config", "/data/forged.properties", check=False)
    assert wrong.returncode == 4, wrong.stdout + wrong.stderr


def test_users_have_the_rights_that_they_need(secure_story: Story) -> None:
    """Neither consumers nor producer were denied anything; a consumer that writes is."""
    assert [each for each in secure_story.before + secure_story.after if each["event"] == "authorizer_denied"] == []
    done = docker("exec", secure_story.project.container(CONSUMERS[0]), "python", "-c", WRITE)
    assert done.stdout == "TOPIC_AUTHORIZATION_FAILED\n"
