"""Users and rules of docker-compose.secure.yml, set once the coordinator runs.

The administrator gives the users `consumer` and `producer` their passwords (SCRAM), and allows each of them what its
service needs and nothing else. `kafka-configs.sh` and `kafka-acls.sh` do the same. A second run changes nothing.

House rule: what a service may do stands in `rules`, and nowhere else.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import wait
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

USERS = ("consumer", "producer")
ITERATIONS = 8_192
WITHIN_S = 60.0


def rules(topic: str, group: str) -> list[AclBinding]:
    """The rules: the consumer reads the topic as a member of the group, the producer writes to the topic."""
    granted = [
        ("consumer", AclOperation.READ, ResourceType.TOPIC, topic),
        ("consumer", AclOperation.READ, ResourceType.GROUP, group),
        ("producer", AclOperation.WRITE, ResourceType.TOPIC, topic),
    ]
    return [
        AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        for user, operation, kind, name in granted
    ]


def main() -> None:
    """Set both, and print a line for each; the first refusal ends the program."""
    secrets = Path(os.environ["CLIENT_SETTINGS"])
    admin = AdminClient({"bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"], **json.loads(secrets.read_bytes())})
    credentials: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(
            user,
            ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS),
            secrets.with_name(f"{user}.password").read_bytes(),
        )
        for user in USERS
    ]
    acls = rules(os.environ["TOPIC"], os.environ["GROUP_ID"])
    under_way = admin.alter_user_scram_credentials(credentials) | admin.create_acls(acls)
    wait(under_way.values(), WITHIN_S)
    for what, done in under_way.items():
        done.result(0)
        print(what, flush=True)


if __name__ == "__main__":
    main()
