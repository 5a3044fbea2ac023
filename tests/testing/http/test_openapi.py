"""The document of a control: it has each route, and a walk over all operations finds answers as it describes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from typing import Any
from urllib.parse import urlencode

import pytest
from jsonschema import Draft202012Validator

from coordinator.testing.http.openapi import document
from coordinator.testing.http.operations import OPERATIONS
from coordinator.testing.http.routes import routes
from tests.site.test_openapi import strict
from tests.testing.http.conftest import Control

DOCUMENT = json.loads(json.dumps(document("1")))

G = "/v1/groups/{group_id}"
C = "/v1/crews/{crew_id}"
MOVED = {"member-0": {"t": [0, 1]}, "member-1": {"t": [2, 3]}, "member-2": {"t": [4, 5]}}

WALK: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "/v1", {}),
    ("POST", "/v1/topics", {"name": "u", "partitions": 2}),
    ("GET", "/v1/topics", {}),
    ("POST", f"{G}/fill", {"count": 3, "topics": ["t"]}),
    ("POST", f"{G}/wait", {"state": "Stable", "members": 3}),
    ("POST", f"{C}/wait-until-seated", {}),
    ("GET", "/v1/groups", {}),
    ("GET", G, {}),
    ("GET", f"{G}/timeline", {"since": 0}),
    ("GET", f"{G}/explain", {"last": 5}),
    ("POST", f"{G}/assert/at-rest", {}),
    ("POST", f"{C}/restart", {"index": 0}),
    ("POST", f"{G}/wait", {"restarts": 1, "no_rebalance_since": 99}),
    ("POST", f"{G}/assert/no-rebalance", {"since": 99}),
    ("POST", f"{G}/assert/rebalances", {"since": 0, "exactly": 1}),
    ("POST", f"{G}/assert/nothing-moved", {"since": 99}),
    ("POST", f"{G}/assert/moved-at-most", {"since": 0, "most": 6}),
    ("POST", f"{G}/assert/same-seats", {"before": MOVED}),
    ("POST", f"{G}/silence", {"member": "member-1"}),
    ("POST", f"{G}/hear", {"member": "member-1"}),
    ("POST", f"{C}/fall-silent", {"index": 1}),
    ("POST", f"{C}/speak-again", {"index": 1}),
    ("POST", f"{C}/be-slow", {"index": 1, "seconds": 0}),
    ("GET", "/v1/crews", {}),
    ("GET", C, {}),
    ("GET", "/v1/clock", {}),
    ("POST", "/v1/clock/freeze", {}),
    ("POST", "/v1/clock/advance", {"seconds": 1, "unheard": [{"group": "g/1", "member": "member-2"}]}),
    ("POST", "/v1/clock/thaw", {}),
    ("POST", f"{G}/expire", {"member": "member-2"}),
    ("POST", f"{C}/leave", {"index": 0}),
    ("DELETE", C, {}),
    ("GET", "/v1/requests", {"api": "JoinGroup"}),
    ("DELETE", "/v1/requests", {}),
    ("POST", "/v1/faults", {"action": "loading", "group": "g/1"}),
    ("POST", "/v1/faults/random", {"seed": 1, "count": 2, "clients": ["member"]}),
    ("GET", "/v1/faults", {"never_fired": "true"}),
    ("DELETE", "/v1/faults/{fault_id}", {}),
    ("DELETE", "/v1/faults", {}),
    ("POST", "/v1/kill", {}),
    ("POST", "/v1/wait-until-killed", {"timeout": 5}),
    ("POST", "/v1/start", {}),
    ("POST", "/v1/end-test", {}),
    ("POST", "/v1/reset", {}),
    ("GET", "/v1/log", {}),
    ("GET", "/openapi.json", {}),
]
"""Each operation of a single server at least once, in an order in which all can be done. Every status is 200."""

WALK_OF_NODES: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "/v1", {}),
    ("GET", f"{G}/coordinator", {}),
    ("POST", f"{G}/move", {"to": 2}),
    ("POST", "/v1/nodes/{node_id}/kill", {}),
    ("POST", "/v1/nodes/{node_id}/start", {}),
    ("POST", f"{G}/move", {"to": 2}),
]
"""The same of several nodes."""


def check(value: Any, schema: dict[str, Any]) -> None:
    """Raise the validation error if the value doesn't match the schema."""
    components = {"schemas": strict(DOCUMENT["components"]["schemas"])}
    Draft202012Validator({**strict(schema), "components": components}).validate(value)


def walker(control: Control) -> Callable[[str, str, dict[str, Any]], tuple[int, Any]]:
    """Return a function that sends a request, with the ids of the crew and of the fault that came last."""
    last = {"group_id": "g%2F1", "crew_id": "0", "fault_id": "0", "node_id": "2"}

    def walk(method: str, path: str, fields: dict[str, Any]) -> tuple[int, Any]:
        target = path.format(**last)
        if method == "POST":
            answer = control.ask(method, target, fields)
        else:
            answer = control.ask(method, f"{target}?{urlencode(fields)}" if fields else target)
        if path.endswith("/fill"):
            last["crew_id"] = answer[1]["id"]
        elif method == "POST" and path.startswith("/v1/faults"):
            last["fault_id"] = answer[1][0]["id"]
        return answer

    return walk


@pytest.mark.parametrize(("server", "steps"), [("on_disk", WALK), ("several", WALK_OF_NODES)])
def test_every_operation_answers_as_described(
    server: str, steps: list[tuple[str, str, dict[str, Any]]], request: pytest.FixtureRequest
) -> None:
    """The fields of each request and the answer to it are those of the document, and no others."""
    assert {(method, path) for method, path, _ in [*WALK, *WALK_OF_NODES]} == {
        (method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods
    }
    walk = walker(request.getfixturevalue(server))
    for method, path, fields in steps:
        described = DOCUMENT["paths"][path][method.lower()]
        named = {each["name"] for each in described.get("parameters", []) if each["in"] == "query"}
        if method == "POST" and "requestBody" in described:
            check(fields, described["requestBody"]["content"]["application/json"]["schema"])
        else:
            assert fields.keys() <= named
        status, body = walk(method, path, fields)
        assert status == 200, (method, path, body)
        ((media_type, content),) = described["responses"]["200"]["content"].items()
        assert isinstance(body, str) == (media_type == "text/plain")
        check(body, content["schema"])


def test_the_document_has_the_paths_that_are_served(control: Control) -> None:
    """The document has each path and method that the control serves, and no other."""
    served = set()
    for route in routes(control.tenure):
        path = route.path.replace(":path}", "}").replace(":int}", "}")
        served |= {(method, path) for method in route.methods or () if method != "HEAD"}
    described = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert served == described
    assert len(described) == len(OPERATIONS) + 1


def test_the_document_is_in_order(control: Control) -> None:
    """Its schemas are valid JSON Schema, its references have targets, and its version is the program's."""
    found = control.get("/openapi.json")
    assert found == DOCUMENT | {"info": DOCUMENT["info"] | {"version": version("tenure")}}
    text = json.dumps(found)
    for name, schema in found["components"]["schemas"].items():
        Draft202012Validator.check_schema(schema)
        assert f'"#/components/schemas/{name}"' in text, f"nothing refers to {name}"
    references = {part.partition('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert references == set(found["components"]["schemas"])
    for methods in found["paths"].values():
        assert all(each["summary"] and not each["summary"].endswith(".") for each in methods.values())


def test_errors_are_described(control: Control) -> None:
    """Each status that an error has is in the document, with the error's shape."""
    for status, body in (
        control.ask("POST", "/v1/clock/advance", {}),
        control.ask("GET", "/v1/crews/9"),
        control.ask("GET", "/v2"),
        control.ask("PUT", "/v1"),
        control.ask("POST", f"{G}/wait", {"members": 1, "timeout": 0}),
        control.ask("GET", "/v1", Origin="http://example.com"),
        control.ask("GET", "/v1", Host="example.com"),
    ):
        check(body, DOCUMENT["paths"]["/v1"]["get"]["responses"][str(status)]["content"]["application/json"]["schema"])
