"""One request of each API that needs a right, and what is compared of its answer: acl_requests.txt has them.

A shape is an expression over the fields of an answer. `topics(name, partitions(error_code))` is a list of the names and
error codes in any order, without topics of the server's own; `has(field)` and `count(field)` are whether there is
something, and how much.

House rule: what is asked and compared is in the text alone; this module has no API of its own.
"""

from __future__ import annotations

import ast
import re
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from protocol.messages import Message
from tests.oracle.literals import Literals, parsed
from tests.support.batches import batch
from tests.support.requests import request

TOPIC, HIDDEN, ABSENT, GROUP, CONSUMERS = "orders", "secrets", "absent", "workers", "consumers"
NO_ID, UNKNOWN_ID = UUID(int=0), UUID(int=7)
RESOURCES = ((2, TOPIC), (2, HIDDEN), (2, ABSENT), (4, "1"))
GROUPS = ((32, GROUP), (32, CONSUMERS))
UNMATCHED: dict[str, Any] = {
    "resource_type_filter": 2,
    "resource_name_filter": "nothing",
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
"""The fields of a filter that selects nothing."""
EVERYTHING = UNMATCHED | {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1}
"""The fields of a filter that selects all ACLs."""

TEXT = Path(__file__).with_name("acl_requests.txt")
CASE = re.compile(r"^(?P<name>(?P<api>\w+).*?) v(?P<version>\d+) ?(?P<fields>.*)\n  (?P<shape>.+)$", re.MULTILINE)


class Fields(Literals):
    """The fields of a request. topic_id: of TOPIC."""

    def __init__(self, topic_id: UUID) -> None:
        self._ids = {"TOPIC_ID": topic_id, "NO_TOPIC": UNKNOWN_ID}
        self.functions = {
            "batch": batch,
            "every": lambda by="name", **fields: [{by: topic, **fields} for topic in (TOPIC, HIDDEN, ABSENT)],
            "by_ids": lambda **fields: [{"topic_id": each, **fields} for each in (topic_id, UNKNOWN_ID)],
            "settings": partial(resources, RESOURCES),
            "settings_of_groups": partial(resources, GROUPS),
        }

    def name(self, name: str) -> Any:
        """See Literals."""
        return self._ids.get(name, name)


def resources(named: tuple[tuple[int, str], ...], **fields: Any) -> list[dict[str, Any]]:
    """Resources that have settings, by type and name."""
    return [{"resource_type": kind, "resource_name": name, **fields} for kind, name in named]


class Case(NamedTuple):
    """A request in a version."""

    name: str
    version: int
    api: str
    fields: str
    compared: str

    def make(self, topic_id: UUID) -> Message:
        """The request, of the id of TOPIC."""
        return request(self.api, **Fields(topic_id).named(parsed(self.fields)))

    def shape(self, body: Any) -> Any:
        """What is compared of an answer."""
        return [_shape(each, body) for each in parsed(self.compared).args]


def _shape(node: ast.expr, body: Any) -> Any:
    match node:
        case ast.Name(field):
            return getattr(body, field)
        case ast.Call(ast.Name("has"), [ast.Name(field)]):
            return getattr(body, field) not in (None, [], NO_ID)
        case ast.Call(ast.Name("count"), [ast.Name(field)]):
            return len(getattr(body, field))
        case ast.Call(ast.Name(field), parts):
            found = ([_shape(part, each) for part in parts] for each in getattr(body, field) if not _is_own(each))
            return sorted(found, key=repr)
    raise ValueError(ast.dump(node))


def _is_own(each: Any) -> bool:
    """Whether this is a topic that the server has for itself."""
    return (getattr(each, "name", None) or "").startswith("__")


def _cases(title: str) -> list[Case]:
    """The requests below a title."""
    (part,) = (each for each in TEXT.read_text().split("\n## ") if each.startswith(title))
    found = [
        Case(each["name"], int(each["version"]), each["api"], each["fields"], each["shape"])
        for each in CASE.finditer(part)
    ]
    # A line of another form would be left out, and nothing compared of that API.
    assert len(found) == sum(line[:1].isalpha() for line in part.splitlines()[1:])
    return found


CASES = _cases("in Kafka 3.9")
NEWER = _cases("in Kafka 4.4")
"""Requests that Kafka 4.4 knows and 3.9 doesn't. The first one joins a group of its own and gets a topic."""
