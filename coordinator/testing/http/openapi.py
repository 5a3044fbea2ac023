"""The OpenAPI document of a control, made of the table of operations.

Schemas that the server's own document has (a timeline's entries, a member) come from there.

House rule: this describes; `given` and `operations` decide.
"""

from __future__ import annotations

from typing import Any

from coordinator.site.openapi import SCHEMAS as OF_SERVER
from coordinator.site.openapi import TEXT, Schema, error_answer, json_answer, text_answer
from coordinator.testing.http.operations import OPERATIONS, Operation
from coordinator.testing.http.shapes import SCHEMAS as OWN

DESCRIPTION = """The test kit of a coordinator: time, faults, members and groups, for tests in any language.

An answer with status 409 says what a wait or an assertion found, in the words of `tenure explain`."""

ERRORS = {
    400: "a field is missing, unknown or wrong",
    401: "the token is missing or wrong",
    403: "the request comes from a page in a browser",
    404: "there is no such member, crew, fault or path",
    405: "the path has no such method",
    409: "an assertion failed, a wait was in vain, or the server can't do that now",
    413: "the body is too large",
    421: "the Host header is another server's",
    500: "a fault of this server: its log says more",
    504: "the server did not answer in time",
}
"""Answers that any operation may give."""


def document(version: str) -> Schema:
    """The whole document. version: of the program."""
    paths: dict[str, Schema] = {
        "/openapi.json": {"get": _described("This document", json_answer("OpenAPI 3.1", {"type": "object"}))}
    }
    for each in OPERATIONS:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each)
    schemas = OWN | {"Error": OF_SERVER["Error"]}
    wanted = _references([paths, schemas])
    while missing := wanted - schemas.keys():
        schemas |= {name: OF_SERVER[name] for name in sorted(missing)}
        wanted = _references(schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tenure's control", "version": version, "description": DESCRIPTION},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}, {}],
    }


def _operation(each: Operation) -> Schema:
    ok = text_answer("text") if each.answer is TEXT else json_answer("done", each.answer)
    found = _described(each.summary, ok)
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": schema} for name, schema in each.parameters.items()
    ]
    if each.has_body and each.fields:
        schema = {
            "type": "object",
            "properties": each.fields,
            "required": list(each.needed),
            "additionalProperties": False,
        }
        found["requestBody"] = {"required": bool(each.needed), "content": {"application/json": {"schema": schema}}}
    elif not each.has_body:
        parameters += [
            {"name": name, "in": "query", "required": name in each.needed, "schema": schema}
            for name, schema in each.fields.items()
        ]
    return found | ({"parameters": parameters} if parameters else {})


def _described(summary: str, ok: Schema) -> Schema:
    errors = {str(status): error_answer(text) for status, text in ERRORS.items()}
    return {"summary": summary, "responses": {"200": ok, **errors}}


def _references(value: Any) -> set[str]:
    """The names of all schemas that the value refers to."""
    if isinstance(value, dict):
        here = {value["$ref"].rpartition("/")[2]} if "$ref" in value else set()
        return here.union(*map(_references, value.values()))
    return set().union(*map(_references, value)) if isinstance(value, list) else set()
