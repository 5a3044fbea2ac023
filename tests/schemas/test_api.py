"""The schema files of the APIs are complete and of one form, and their remarks are true."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import schemas.api
from protocol.definition import Struct, define
from schemas.api import module_name
from schemas.api_keys import API_KEYS

FOLDER = Path(schemas.api.__file__).parent
VERSIONS = {
    "AlterClientQuotas": (0, 1),
    "AlterConfigs": (0, 2),
    "AlterPartitionReassignments": (0, 1),
    "AlterReplicaLogDirs": (0, 2),
    "AlterUserScramCredentials": (0, 0),
    "ApiVersions": (0, 5),
    "CreateAcls": (0, 3),
    "CreatePartitions": (0, 3),
    "CreateTopics": (0, 7),
    "DeleteAcls": (0, 3),
    "DeleteGroups": (0, 3),
    "DeleteRecords": (0, 2),
    "DeleteTopics": (0, 6),
    "DescribeAcls": (0, 3),
    "DescribeClientQuotas": (0, 1),
    "DescribeCluster": (0, 2),
    "ConsumerGroupHeartbeat": (0, 1),
    "ConsumerGroupDescribe": (0, 1),
    "ListConfigResources": (0, 1),
    "DescribeConfigs": (0, 4),
    "DescribeGroups": (0, 6),
    "DescribeLogDirs": (0, 5),
    "DescribeUserScramCredentials": (0, 0),
    "ElectLeaders": (0, 2),
    "Fetch": (4, 18),
    "FindCoordinator": (0, 6),
    "Heartbeat": (0, 4),
    "IncrementalAlterConfigs": (0, 1),
    "InitProducerId": (0, 5),
    "JoinGroup": (0, 9),
    "LeaveGroup": (0, 5),
    "ListGroups": (0, 5),
    "ListOffsets": (0, 11),
    "ListPartitionReassignments": (0, 0),
    "Metadata": (0, 13),
    "OffsetCommit": (0, 10),
    "OffsetDelete": (0, 0),
    "OffsetFetch": (0, 10),
    "OffsetForLeaderEpoch": (0, 4),
    "Produce": (0, 13),
    "SaslAuthenticate": (0, 2),
    "SaslHandshake": (0, 1),
    "SyncGroup": (0, 5),
    "TxnOffsetCommit": (0, 6),
    "AddPartitionsToTxn": (0, 5),
    "AddOffsetsToTxn": (0, 4),
    "EndTxn": (0, 5),
    "WriteTxnMarkers": (1, 2),
    "DescribeProducers": (0, 0),
    "DescribeTransactions": (0, 0),
    "ListTransactions": (0, 2),
    "ShareGroupDescribe": (1, 1),
    "StreamsGroupDescribe": (0, 0),
    "DescribeShareGroupOffsets": (0, 1),
}
"""The served APIs and versions, and the three that Tenure only sends. Clients choose versions by these numbers."""

EACH_API = pytest.mark.parametrize("api", API_KEYS)


def schema_of(api: str) -> ModuleType:
    """Return the module of an API."""
    return import_module(f"schemas.api.{module_name(api)}")


def fields_in(struct: Struct, version: int, path: str = "") -> set[str]:
    """Return path and type of each field of a version, at every depth."""
    found = set()
    for field in struct.fields:
        if version in field.versions:
            name = f"{path}{field.name}"
            found.add(name)
            if field.struct is not None:
                found |= fields_in(field.struct, version, f"{name}.")
    return found


def test_each_file_is_an_api() -> None:
    """The folder has one file for each API in the table of keys, and no other file."""
    assert {path.stem for path in FOLDER.glob("*.py")} == {"__init__", *map(module_name, API_KEYS)}


@EACH_API
def test_versions(api: str) -> None:
    """Each schema has the name, key and versions that ApiVersions reports to clients."""
    schema = schema_of(api)
    assert (api, API_KEYS[api], VERSIONS[api]) == (schema.NAME, schema.API_KEY, schema.VERSIONS)


@EACH_API
def test_tables_can_be_read(api: str) -> None:
    """Both tables of an API follow the rules of definitions."""
    schema = schema_of(api)
    for table in (schema.REQUEST, schema.RESPONSE):
        assert define(api, table, schema.VERSIONS, schema.FLEXIBLE, schema.API_KEY).api_key == schema.API_KEY


@EACH_API
def test_changes_tell_what_the_tables_show(api: str) -> None:
    """The remark on a version names each field that the version adds or drops in request or response."""
    schema = schema_of(api)
    first, last = schema.VERSIONS
    assert all(first < version <= last for version in schema.CHANGES)
    for version in range(first + 1, last + 1):
        changed = set()
        for table in (schema.REQUEST, schema.RESPONSE):
            struct = define(api, table, schema.VERSIONS, schema.FLEXIBLE).struct
            changed |= fields_in(struct, version) ^ fields_in(struct, version - 1)
        # If a version adds or drops a whole struct, the remark need not name the fields in it.
        names = {path.rpartition(".")[2] for path in changed if path.rpartition(".")[0] not in changed}
        named = set(re.findall(r"`(\w+)`", schema.CHANGES.get(version, "")))
        assert names <= named, f"{api} v{version}: {names - named} not named"


@EACH_API
def test_changes_name_no_field_that_isnt_there(api: str) -> None:
    """Each name in backticks in the remarks is a field of the API."""
    schema = schema_of(api)
    known = set(re.findall(r"^ *(\w+)", schema.REQUEST + schema.RESPONSE, re.MULTILINE))
    for version, remark in schema.CHANGES.items():
        assert set(re.findall(r"`(\w+)`", remark)) <= known, f"{api} v{version}"


def test_module_name() -> None:
    """An API's file has the API's name in snake_case."""
    assert [module_name(api) for api in ("JoinGroup", "Fetch")] == ["join_group", "fetch"]
