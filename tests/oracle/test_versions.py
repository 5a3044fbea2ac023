"""Apache Kafka 4.4.0's message files and its answer to ApiVersions, beside the schemas and Tenure's answer.

Three of Kafka's jars have the message files, those of requests and those of records. PAGE has a table of all APIs that
a broker serves, with a decision where Tenure serves another range. This command writes it:

    ORACLE_RECORD=1 pytest tests/oracle/test_versions.py -m oracle
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from protocol.definition import FIXED, Struct
from protocol.messages import API_KEYS, NAMES, ApiVersionsRequest, definition
from tests.oracle.script import IS_RECORDING
from tests.support.apache import VERSION, VERSION_44, ApacheKafka, jars
from tests.support.raw import ask
from tests.support.tenure import Tenure

pytestmark = pytest.mark.oracle

PAGE = Path(__file__).parents[2] / "docs" / "start" / "api-versions.md"
HEAD = "| key | API | Kafka 4.4.0 | Tenure | |\n| --- | --- | --- | --- | --- |\n"

RENAMED = {"TxnOffsetCommitRequest": {"/generation_id_or_member_epoch": "/generation_id"}}
"""Fields to which Kafka gave other names without another version."""

OWN_STRUCTS = {
    "V3AndBelowTopic": "AddPartitionsToTxnTopic",
    "V3AndBelowTopicResult": "AddPartitionsToTxnTopicResult",
    "V3AndBelowPartitionResult": "AddPartitionsToTxnPartitionResult",
}
"""A struct that Kafka has in two places of a message -> its name there; a schema has a name for each place."""

OWN_TAG, OWN_TAGS_FROM = 423, 10_000
"""The tags of fields that are Tenure's own: of KIP-423, and all from a number on."""

TOKENS = "delegation tokens: none here"
SHARE = "share groups: none here"
STREAMS = "groups of Streams: none here"
QUORUM = "the quorum of controllers: none here"
DECISIONS = {
    "Fetch": "all; no fetch sessions",
    "Produce": "all; 0 to 2 are listed for librdkafka and refused, as in Kafka",
    "CreateDelegationToken": TOKENS,
    "RenewDelegationToken": TOKENS,
    "ExpireDelegationToken": TOKENS,
    "DescribeDelegationToken": TOKENS,
    "DescribeQuorum": QUORUM,
    "UpdateFeatures": "one version of each feature, which nobody can change",
    "UnregisterBroker": QUORUM,
    "UnregisterController": QUORUM,
    "AddRaftVoter": QUORUM,
    "RemoveRaftVoter": QUORUM,
    "GetTelemetrySubscriptions": "clients that are not asked for metrics send none",
    "PushTelemetry": "clients that are not asked for metrics send none",
    "DescribeTopicPartitions": "pages of topics; without it admin clients ask Metadata",
    "ShareGroupHeartbeat": SHARE,
    "ShareGroupDescribe": SHARE,
    "ShareFetch": SHARE,
    "ShareAcknowledge": SHARE,
    "InitializeShareGroupState": SHARE,
    "ReadShareGroupState": SHARE,
    "WriteShareGroupState": SHARE,
    "DeleteShareGroupState": SHARE,
    "ReadShareGroupStateSummary": SHARE,
    "DescribeShareGroupOffsets": SHARE,
    "AlterShareGroupOffsets": SHARE,
    "DeleteShareGroupOffsets": SHARE,
    "StreamsGroupHeartbeat": STREAMS,
    "StreamsGroupDescribe": STREAMS,
    "StreamsGroupTopologyDescriptionUpdate": STREAMS,
}
"""The reasons why Tenure serves no version of an API, or not the newest."""

Files = dict[str, dict[str, Any]]
Versions = tuple[int, int]


@pytest.fixture(scope="module")
def files(kafka_is_here: None) -> Files:
    """Kafka's message files, by message."""
    texts = []
    for name in ("kafka-clients", "kafka-group-coordinator", "kafka-transaction-coordinator"):
        with ZipFile(jars(VERSION_44) / f"{name}-{VERSION_44}.jar") as jar:
            texts += [
                jar.read(each).decode() for each in jar.namelist() if re.match(r"common/message/\w+\.json$", each)
            ]
    found = [json.loads(re.sub(r"(?m)(^|\s)//.*$", "", text)) for text in texts]
    return {each["name"]: each for each in found}


@pytest.mark.parametrize("name", NAMES)
def test_schemas_have_the_fields_of_kafkas_message_files(files: Files, name: str) -> None:
    """In each version that both have: the same fields, in the order of the wire, of the same form; but Tenure's own.

    A record's key has version 0 in a file of Kafka's. What it has on disk is the file's number.
    """
    ours, theirs = definition(name), files[name]
    is_key = theirs["type"] == "coordinator-key"
    first, last = [theirs["apiKey"]] * 2 if is_key else _range(theirs["validVersions"])
    flexible = _range(theirs["flexibleVersions"])[0] if theirs["flexibleVersions"] != "none" else None
    common = {each["name"]: each["fields"] for each in theirs.get("commonStructs", ())}
    assert ours.flexible == flexible
    assert ours.api_key is None or ours.api_key == theirs["apiKey"]
    versions = range(max(first, ours.versions.first), min(last, ours.versions.last) + 1)
    assert versions
    for version in versions:
        fields = [
            (RENAMED.get(name, {}).get(path, path), *form)
            for path, *form in _theirs(theirs["fields"], common, 0 if is_key else version)
        ]
        assert list(_ours(ours.struct, version)) == fields, version


def _ours(struct: Struct, version: int, path: str = "") -> Iterator[tuple[Any, ...]]:
    """The fields of a version: path, type, tag, whether it may be null, default."""
    for field in sorted(struct.fields, key=lambda each: -1 if each.tag is None else each.tag):
        is_own = field.tag == OWN_TAG or (field.tag or 0) >= OWN_TAGS_FROM
        if version in field.versions and not is_own:
            where = f"{path}/{field.name}"
            may_be_null = field.nullable is not None and version in field.nullable
            has_default = field.struct is None and not field.array and field.type in {*FIXED, "string"}
            kind = f"{'[]' * field.array}{OWN_STRUCTS.get(field.type, field.type)}"
            yield where, kind, field.tag, may_be_null, field.default if has_default and field.type != "uuid" else ""
            if field.struct is not None:
                yield from _ours(field.struct, version, where)


def _theirs(
    fields: list[dict[str, Any]], common: dict[str, list[dict[str, Any]]], version: int, path: str = ""
) -> Iterator[tuple[Any, ...]]:
    """The same of Kafka's fields. common: the structs that have a name of their own."""
    for field in sorted(fields, key=lambda each: each.get("tag", -1)):
        if _has(field.get("versions") or field["taggedVersions"], version):
            where = f"{path}/{re.sub('(?<=[a-z0-9])(?=[A-Z])', '_', field['name']).lower()}"
            kind = field["type"].removeprefix("[]")
            tag = field["tag"] if _has(field.get("taggedVersions", "none"), version) else None
            may_be_null = _has(field.get("nullableVersions", "none"), version)
            yield where, field["type"], tag, may_be_null, _default(field["type"], field.get("default"))
            below = field.get("fields") or common.get(kind)
            if below:
                yield from _theirs(below, common, version, where)


def _default(kind: str, given: Any) -> Any:
    """A field's default as a value; "" for types whose default is always the same."""
    if kind == "bool":
        return str(given).lower() == "true"
    if kind == "string":
        return None if given == "null" else given or ""
    return int(str(given or 0), 0) if kind in FIXED and kind != "uuid" else ""


def _has(versions: str, version: int) -> bool:
    return versions != "none" and version in range(_range(versions)[0], _range(versions)[1] + 1)


def _range(versions: str) -> Versions:
    """The first and the last version of `2`, `2-4` or `2+`; (0, -1) of `none`."""
    if versions == "none":
        return 0, -1
    first, separator, last = versions.removesuffix("+").partition("-")
    return int(first), int(last) if separator else 32_767 if versions.endswith("+") else int(first)


def test_each_version_of_kafkas_has_a_decision(files: Files, open_tenure: Tenure) -> None:
    """The page has what both answer, and a reason for each API whose newest version only Kafka serves."""
    with ApacheKafka(version=VERSION_44) as node:
        kafka = _api_versions(node.port)
    names = {
        each["apiKey"]: each["name"].removesuffix("Request") for each in files.values() if each["type"] == "request"
    }
    table = HEAD + "".join(_rows(kafka, _api_versions(open_tenure.port), names))
    before, _, rest = PAGE.read_text().partition(HEAD)
    after = re.sub(r"\A(\|.*\n)+", "", rest)
    if IS_RECORDING:
        PAGE.write_text(before + table + after)
    assert before + table + after == PAGE.read_text()


def _rows(kafka: dict[int, Versions], tenure: dict[int, Versions], names: dict[int, str]) -> Iterator[str]:
    for key, (first, last) in sorted(kafka.items()):
        name, ours = names[key], tenure.get(key)
        is_whole = ours is not None and ours[1] == last
        reason = DECISIONS[name] if name in DECISIONS or not is_whole else "all"
        shown = "none" if ours is None else f"{ours[0]} to {ours[1]}"
        yield f"| {key} | {name} | {first} to {last} | {shown} | {reason} |\n"


def test_old_versions_are_those_of_kafka_39(open_kafka: ApacheKafka, open_tenure: Tenure) -> None:
    """Clients that Kafka 4 dropped find their versions here.

    But for Fetch in message formats of before Kafka 0.11, and WriteTxnMarkers 0, which brokers alone sent.
    """
    kafka, tenure = _api_versions(open_kafka.port), _api_versions(open_tenure.port)
    assert open_kafka.version == VERSION
    assert tenure.pop(API_KEYS["Fetch"])[0] == 4
    assert tenure.pop(API_KEYS["WriteTxnMarkers"])[0] == 1
    new = {API_KEYS[each] for each in ("ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "ListConfigResources")}
    assert {key: first for key, (first, _) in tenure.items() if key not in new} == {
        key: kafka[key][0] for key in tenure if key not in new
    }


def _api_versions(port: int) -> dict[int, Versions]:
    answer = ask(port, ApiVersionsRequest(), 0)
    return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
