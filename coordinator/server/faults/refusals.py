"""The error answer of any request, in its version: where each API has its errors.

Most responses have one error on top. The others have one per element that the request names: `PLACES` says which list
of the response mirrors which list of the request. A Metadata request for all topics names none, so its answer has no
error.

House rule: an answer here is one that Kafka's clients can read; whether Kafka would ever send it is the plan's affair.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from coordinator.group.answers import join_error
from protocol.definition import Field, Struct
from protocol.messages import api_schema, definition, response_class
from schemas.errors import ErrorCode


class Place(NamedTuple):
    """A list of a response with an element for each element of a list in the request.

    asked, answered: the two lists. keys: fields of the response's element, by their names in the request's. An element
    that is no struct is the value of the only key. below: such lists inside.
    """

    asked: str
    answered: str
    keys: dict[str, str]
    below: Place | None = None


NAME = {"name": "name"}
NAME_OR_ID = {"name": "name", "topic_id": "topic_id"}
TOPIC = {"topic": "topic"}
USER = {"name": "user"}
RESOURCE = {"resource_type": "resource_type", "resource_name": "resource_name"}
ENTITY = {"entity_type": "entity_type", "entity_name": "entity_name"}

BY_NUMBER = Place("partitions", "partitions", {"partition_index": "partition_index"})
BY_INDEX = Place("partition_indexes", "partitions", {"": "partition_index"})
PARTITIONS_OF_FETCH = Place("partitions", "partitions", {"partition": "partition_index"})
PARTITIONS_OF_PRODUCE = Place("partition_data", "partition_responses", {"index": "index"})
PARTITIONS_ADDED = Place("partitions", "results_by_partition", {"": "partition_index"})
EPOCHS = Place("partitions", "partitions", {"partition": "partition"})
MOVED = Place("partitions", "partitions", {"": "partition_index"})
ELECTED = Place("partitions", "partition_result", {"": "partition_id"})

COMMITTED = (Place("topics", "topics", NAME, BY_NUMBER),)
COMMITTED_BY_ID = (Place("topics", "topics", NAME_OR_ID, BY_NUMBER),)
INDEXES = Place("topics", "topics", NAME, BY_INDEX)

PLACES = {
    "Produce": (Place("topic_data", "responses", NAME_OR_ID, PARTITIONS_OF_PRODUCE),),
    "Fetch": (Place("topics", "responses", TOPIC | {"topic_id": "topic_id"}, PARTITIONS_OF_FETCH),),
    "ListOffsets": COMMITTED,
    "Metadata": (Place("topics", "topics", NAME_OR_ID),),
    "OffsetCommit": COMMITTED_BY_ID,
    "OffsetFetch": (INDEXES, Place("groups", "groups", {"group_id": "group_id"})),
    "FindCoordinator": (Place("coordinator_keys", "coordinators", {"": "key"}),),
    "DescribeGroups": (Place("groups", "groups", {"": "group_id"}),),
    "ConsumerGroupDescribe": (Place("group_ids", "groups", {"": "group_id"}),),
    "CreateTopics": (Place("topics", "topics", NAME),),
    "DeleteTopics": (Place("topic_names", "responses", {"": "name"}), Place("topics", "responses", NAME_OR_ID)),
    "DeleteRecords": COMMITTED,
    "OffsetForLeaderEpoch": (Place("topics", "topics", TOPIC, EPOCHS),),
    "TxnOffsetCommit": COMMITTED_BY_ID,
    "AddPartitionsToTxn": (Place("v3_and_below_topics", "results_by_topic_v3_and_below", NAME, PARTITIONS_ADDED),),
    "WriteTxnMarkers": (Place("markers", "markers", {"producer_id": "producer_id"}, INDEXES),),
    "DescribeProducers": (INDEXES,),
    "DescribeTransactions": (Place("transactional_ids", "transaction_states", {"": "transactional_id"}),),
    "DescribeConfigs": (Place("resources", "results", RESOURCE),),
    "AlterConfigs": (Place("resources", "responses", RESOURCE),),
    "IncrementalAlterConfigs": (Place("resources", "responses", RESOURCE),),
    "AlterReplicaLogDirs": (Place("topics", "results", {"name": "topic_name"}, MOVED),),
    "AlterUserScramCredentials": (Place("deletions", "results", USER), Place("upsertions", "results", USER)),
    "AlterClientQuotas": (Place("entries", "entries", {}, Place("entity", "entity", ENTITY)),),
    "CreatePartitions": (Place("topics", "results", NAME),),
    "CreateAcls": (Place("creations", "results", {}),),
    "DeleteAcls": (Place("filters", "filter_results", {}),),
    "DeleteGroups": (Place("groups_names", "results", {"": "group_id"}),),
    "ElectLeaders": (Place("topic_partitions", "replica_election_results", TOPIC, ELECTED),),
}
"""The lists of responses whose elements have an error, by API."""

ERROR_FIELDS = ("error_code", "partition_error_code")
"""The names that the field of an error has."""

ON_TOP_AND_BELOW = ("Fetch",)
"""Responses that have an error in both places at once, as those of Kafka's own error answers."""


def refusal(api_key: int, version: int, request: Any, error: int) -> Any:
    """The response to `request`, of this version, with `error`."""
    api = api_schema(api_key).NAME
    if api == "JoinGroup":
        return join_error(version, ErrorCode(error), request.member_id)
    struct = definition(f"{api}Response").struct
    response: Any = response_class(api_key)()
    top = _field(struct, "error_code", version)
    if top is not None:
        response.error_code = error
    if top is None or api in ON_TOP_AND_BELOW:
        # The log folders of AlterReplicaLogDirs each have topics; the response has them without their folders.
        sources = request.dirs if api == "AlterReplicaLogDirs" else [request]
        for place in PLACES.get(api, ()):
            for source in sources:
                _fill(type(response), response, struct, source, place, version, error)
    return response


def as_loading(api_key: int, version: int, request: Any) -> Any:
    """The response of a coordinator that reads its log.

    Old clients don't expect COORDINATOR_LOAD_IN_PROGRESS in every API: Kafka answers a heartbeat with NONE, and a sync
    with REBALANCE_IN_PROGRESS.
    """
    instead = {"Heartbeat": ErrorCode.NONE, "SyncGroup": ErrorCode.REBALANCE_IN_PROGRESS}
    error = instead.get(api_schema(api_key).NAME, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return refusal(api_key, version, request, error)


def _field(struct: Struct, name: str, version: int) -> Field | None:
    """A field of a struct, if this version has it."""
    return next((field for field in struct.fields if field.name == name and version in field.versions), None)


def _fill(classes: Any, answer: Any, struct: Struct, asked: Any, place: Place, version: int, error: int) -> None:
    """Fill one list of an answer, with an element for each that was asked for. classes: has the elements' classes."""
    field = _field(struct, place.answered, version)
    if field is None:
        return
    assert field.struct is not None
    error_fields = [name for name in ERROR_FIELDS if _field(field.struct, name, version) is not None]
    elements = getattr(answer, place.answered)
    for each in getattr(asked, place.asked, None) or ():
        element = getattr(classes, field.type)()
        for key, name in place.keys.items():
            value = getattr(each, key) if key else each
            if value is not None:
                setattr(element, name, value)
        for name in error_fields:
            setattr(element, name, error)
        if place.below is not None:
            _fill(classes, element, field.struct, each, place.below, version, error)
        elements.append(element)
