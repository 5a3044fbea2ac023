"""The messages of etcd's interface (v3) that the engine uses, as classes of protobuf.

The table below is the definition: each message has fields with a number, a name and a type. protobuf's runtime makes
the classes from it at the import; nothing is generated, and nothing has to be built. A field that isn't in the table
is kept and ignored, as protobuf does.

Source: names, numbers and types are those of etcd's rpc.proto and kv.proto, release 3.4 and later (Apache License 2.0).

House rule: a message or field that nobody uses is not here.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PACKAGE = "etcdserverpb"

# NAME: "number name type, ...". A type in capitals is a message; * marks a repeated field, | one of a choice.
_TABLE = {
    "ResponseHeader": "3 revision int64",
    "KeyValue": "1 key bytes, 2 create_revision int64, 3 mod_revision int64, 5 value bytes, 6 lease int64",
    "Event": "1 type int32, 2 kv KeyValue",
    "RangeRequest": "1 key bytes, 2 range_end bytes, 3 limit int64, 4 revision int64, 8 keys_only bool",
    "RangeResponse": "1 header ResponseHeader, 2 kvs *KeyValue, 3 more bool",
    "PutRequest": "1 key bytes, 2 value bytes, 3 lease int64",
    "DeleteRangeRequest": "1 key bytes",
    "RequestOp": (
        "1 request_range |RangeRequest, 2 request_put |PutRequest, 3 request_delete_range |DeleteRangeRequest, "
        "4 request_txn |TxnRequest"
    ),
    "ResponseOp": "1 response_range |RangeResponse, 4 response_txn |TxnResponse",
    "Compare": (
        "1 result int32, 2 target int32, 3 key bytes, 5 create_revision |int64, 6 mod_revision |int64, 7 value |bytes"
    ),
    "TxnRequest": "1 compare *Compare, 2 success *RequestOp, 3 failure *RequestOp",
    "TxnResponse": "1 header ResponseHeader, 2 succeeded bool, 3 responses *ResponseOp",
    "CompactionRequest": "1 revision int64",
    "CompactionResponse": "1 header ResponseHeader",
    "LeaseGrantRequest": "1 TTL int64",
    "LeaseGrantResponse": "1 header ResponseHeader, 2 ID int64, 3 TTL int64, 4 error string",
    "LeaseRevokeRequest": "1 ID int64",
    "LeaseRevokeResponse": "1 header ResponseHeader",
    "LeaseKeepAliveRequest": "1 ID int64",
    "LeaseKeepAliveResponse": "1 header ResponseHeader, 2 ID int64, 3 TTL int64",
    "WatchCreateRequest": "1 key bytes, 2 range_end bytes, 3 start_revision int64",
    "WatchRequest": "1 create_request |WatchCreateRequest",
    "WatchResponse": (
        "1 header ResponseHeader, 3 created bool, 4 canceled bool, 5 compact_revision int64, 6 cancel_reason string, "
        "11 events *Event"
    ),
    "StatusRequest": "",
    "StatusResponse": "2 version string, 3 dbSize int64, 8 errors *string, 9 dbSizeInUse int64",
    "AuthenticateRequest": "1 name string, 2 password string",
    "AuthenticateResponse": "1 header ResponseHeader, 2 token string",
}

_TYPES = {
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "string": FieldDescriptorProto.TYPE_STRING,
}

DELETED = 1
"""Event.type of a deletion."""
CREATE_REVISION, MOD_REVISION, VALUE = 1, 2, 3
"""Compare.target. Compare.result is 0, "equal"."""


def _made() -> dict[str, Any]:
    file = FileDescriptorProto(name="tenure/etcd.proto", package=PACKAGE, syntax="proto3")
    for name, fields in _TABLE.items():
        message = file.message_type.add(name=name)
        for text in filter(None, fields.split(", ")):
            number, field_name, kind = text.split(" ")
            field = message.field.add(name=field_name, number=int(number), label=FieldDescriptorProto.LABEL_OPTIONAL)
            if kind.startswith("*"):
                field.label = FieldDescriptorProto.LABEL_REPEATED
            elif kind.startswith("|"):
                field.oneof_index = 0
                if not message.oneof_decl:
                    message.oneof_decl.add(name="choice")
            kind = kind.lstrip("*|")
            if kind in _TYPES:
                field.type = _TYPES[kind]
            else:
                field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in _TABLE}


MESSAGES = _made()
"""The class of each message, by its name."""


def message(name: str, /, **fields: Any) -> Any:
    """A message with these fields."""
    return MESSAGES[name](**fields)
