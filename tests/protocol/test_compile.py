"""The classes of messages, and encode and decode from their callers' view."""

from __future__ import annotations

import copy
import pickle
from collections import deque
from collections.abc import Generator
from itertools import islice
from typing import Any, TypeVar
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given

from protocol.compile import (
    Message,
    alike,
    decode,
    decode_in_steps,
    encode,
    encode_in_steps,
    message_class,
)
from protocol.definition import define
from protocol.errors import ProtocolError, TooLarge, UnsupportedVersion
from protocol.messages import (
    NAMES,
    DescribeGroupsResponse,
    FetchRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from protocol.primitives import COPIED_BYTES
from protocol.source import JOINED_MAX
from tests.protocol.strategies import MESSAGES, any_message, full_message, share
from tests.support.cases import each
from tests.support.decoded import decode_from

AnyValue = TypeVar("AnyValue")

BYTES_MAX = 1 << 30

TABLE = """
name        string      0+
size        int32       1+   default=-1
remark      string      1+   null default=null ignorable
topic_id    uuid        1+   ignorable
partitions  []Partition 1-2
    index   int32       1+
window      Window      2+   tag=0
    first   int64       2+   default=-1
note        int8        2+   default=-1 ignorable tag=5
"""

TAGGED = """
flag     bool      0+  tag=0
number   int32     0+  default=-1 tag=1
name     string    0+  tag=2
remark   string    0+  null default=null tag=3
id       uuid      0+  tag=4
ids      []uuid    0+  null default=null tag=5
numbers  []int16   0+  tag=6
content  bytes     0+  tag=7
pairs    []Pair    0+  tag=8
    left int8      0+
"""


@pytest.fixture
def example() -> type[Any]:
    """Return a message class with a field of each kind: versions 0 to 3, flexible from 2."""
    cls: type[Any] = message_class(define("Example", TABLE, (0, 3), flexible=2, api_key=99))
    return cls


def test_class_tells_what_it_is(example: type[Any]) -> None:
    """A class has the message's name, key and versions, and the classes of its structs."""
    for cls in (example, example.Partition):
        assert issubclass(cls, Message)
        assert (cls.API_KEY, cls.VERSIONS, cls.FLEXIBLE) == (99, (0, 3), 2)
    assert (example.NAME, example.Partition.NAME) == ("Example", "Partition")
    assert example.Partition.__qualname__ == "Example.Partition"


def test_constructor_fills_in_kafkas_defaults(example: type[Any]) -> None:
    """A field without a value gets the schema's default; each message has its own lists and structs."""
    one, other = example(), example()
    assert (one.name, one.size, one.remark, one.topic_id, one.note) == ("", -1, None, UUID(int=0), -1)
    assert (one.partitions, one.window, one.unknown_tagged_fields) == ([], example.Window(first=-1), {})
    for field in ("partitions", "window"):
        assert getattr(one, field) is not getattr(other, field)
    with pytest.raises(TypeError, match="a dict of its own"):
        one.unknown_tagged_fields[7] = b""


def test_constructor_takes_keywords_only(example: type[Any]) -> None:
    """The constructor takes keywords only, and only names of fields."""
    with pytest.raises(TypeError):
        example("a")
    with pytest.raises(TypeError):
        example(names="a")
    with pytest.raises(AttributeError):
        example().names = "a"


def test_null_given_to_an_array_stays_null() -> None:
    """The constructor keeps null apart from an empty array: null means all topics, empty means no topics."""
    assert OffsetFetchRequest(topics=None).topics is None


def test_tagged_struct_that_is_null_stands_on_the_wire() -> None:
    """Kafka leaves out a tagged struct of defaults, and writes null with a mark of its own, even if it may be null."""
    table = "pair Pair 0+ null tag=0\n  left int8 0+"
    cls: type[Any] = message_class(define("Tagged", table, (0, 0), flexible=0))
    written = {b"\0": cls(), b"\1\0\1\0": cls(pair=None), b"\1\0\3\1\7\0": cls(pair=cls.Pair(left=7))}
    for data, message in written.items():
        assert encode(message, 0) == data
        assert decode(cls, data, 0) == message


def test_messages_alike_differ_in_what_is_given(example: type[Any]) -> None:
    """A copy with changed fields equals a message made of all fields; the original stays unchanged."""
    said: dict[str, Any] = {"name": "a", "remark": "r", "topic_id": UUID(int=1), "unknown_tagged_fields": {9: b"x"}}
    one = example(**said, size=1, note=1)
    make = alike(example, "note", "size")
    assert [make(one, 2, 3), make(one, 4, 5)] == [example(**said, note=2, size=3), example(**said, note=4, size=5)]
    assert one == example(**said, size=1, note=1)
    assert alike(example, "name")(one, "b") == example(**said | {"name": "b"}, size=1, note=1)
    assert alike(example.Partition, "index")(example.Partition(index=1), 7) == example.Partition(index=7)
    with pytest.raises(AssertionError, match="nothing"):
        alike(example, "name", "nothing")


def test_equality(example: type[Any]) -> None:
    """Messages are equal if all fields are, unknown tagged ones too; messages of two classes never are."""

    def make() -> Any:
        return example(name="a", partitions=[example.Partition(index=1)])

    assert make() == make()
    assert make() != example(name="a", partitions=[example.Partition(index=2)])
    assert make() != example(name="a", partitions=[example.Partition(index=1)], unknown_tagged_fields={9: b""})
    assert example.Partition(index=1) != example.Window(first=1)
    assert example() != "Example()"


def test_messages_are_not_hashable(example: type[Any]) -> None:
    """A message can change, so it can't be a key of a dict."""
    with pytest.raises(TypeError):
        hash(example())


def test_repr_can_be_read() -> None:
    """repr shows the fields of a message, and unknown tagged fields if the message has any."""
    message = LeaveGroupResponse(members=[LeaveGroupResponse.MemberResponse(member_id="m")])
    assert repr(message) == (
        "LeaveGroupResponse(throttle_time_ms=0, error_code=0, "
        "members=[LeaveGroupResponse.MemberResponse(member_id='m', group_instance_id='', error_code=0)])"
    )
    message.unknown_tagged_fields = {7: b"x"}
    assert repr(message).endswith("unknown_tagged_fields={7: b'x'})")


def test_messages_can_be_copied_and_pickled() -> None:
    """A message can be copied and pickled like any plain value."""
    message = JoinGroupRequest(protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range")])
    assert copy.deepcopy(message) == message
    assert pickle.loads(pickle.dumps(message)) == message


def test_field_that_the_version_lacks_is_dropped_if_ignorable(example: type[Any]) -> None:
    """The encoder drops an ignorable field that the version doesn't have."""
    message = example(name="a", remark="r", topic_id=UUID(int=1), note=3)
    assert encode(message, 0) == encode(example(name="a"), 0) == b"\0\1a"


@pytest.mark.parametrize(
    ("fields", "version"),
    [({"size": 0}, 0), ({"partitions": None}, 0), ({"partitions": [1]}, 3), ({"window": None}, 1)],
)
def test_field_that_the_version_lacks_must_have_its_default(
    example: type[Any], fields: dict[str, Any], version: int
) -> None:
    """The encoder refuses a value in a field that the version doesn't have and that isn't ignorable."""
    (name,) = fields
    with pytest.raises(AssertionError, match=name):
        encode(example(**fields), version)
    encode(example(), version)


def test_struct_that_the_version_lacks_must_have_its_default() -> None:
    """A struct whose fields have their defaults counts as default."""
    encode(FetchRequest(replica_state=FetchRequest.ReplicaState()), 12)
    with pytest.raises(AssertionError, match="replica_state"):
        encode(FetchRequest(replica_state=FetchRequest.ReplicaState(replica_id=1)), 12)


def test_decoding_fills_in_the_defaults_of_what_the_version_lacks(example: type[Any]) -> None:
    """The decoder gives defaults to fields that the version doesn't have: one class serves all versions."""
    assert decode(example, b"\0\1a", 0) == example(name="a")


def test_default_of_a_tagged_field_is_not_sent(example: type[Any]) -> None:
    """The encoder writes no tagged field that has its default."""
    body = b"\2a" + b"\0\0\0\7" + b"\0" + b"\0" * 16
    assert encode(example(name="a", size=7), 3) == body + b"\0"
    assert encode(example(name="a", size=7, note=2), 3) == body + b"\1\5\1\2"
    assert encode(example(name="a", size=7, window=example.Window(first=1)), 3) == (
        body + b"\1\0\x09" + b"\0" * 7 + b"\1" + b"\0"
    )


@pytest.mark.parametrize(
    ("field", "value", "encoded"),
    [
        ("flag", True, b"\0\1\1"),
        ("number", 0, b"\1\4\0\0\0\0"),
        ("name", "a", b"\2\2\2a"),
        ("remark", "", b"\3\1\1"),
        ("id", UUID(int=1), b"\4\x10" + b"\0" * 15 + b"\1"),
        ("ids", [], b"\5\1\1"),
        ("numbers", [1], b"\6\3\2\0\1"),
        ("content", b"a", b"\7\2\2a"),
    ],
)
def test_tagged_field_of_each_type(field: str, value: object, encoded: bytes) -> None:
    """A tagged field can have any type; the encoder writes its tag, its size and a value other than the default."""
    cls: Any = message_class(define("Example", TAGGED, (0, 0), flexible=0))
    assert encode(cls(), 0) == b"\0"
    assert decode(cls, b"\0", 0) == cls()
    assert encode(cls(**{field: value}), 0) == b"\1" + encoded
    assert decode(cls, b"\1" + encoded, 0) == cls(**{field: value})


def test_tagged_array_of_structs() -> None:
    """A struct in a tagged field has its own tagged fields."""
    cls: Any = message_class(define("Example", TAGGED, (0, 0), flexible=0))
    message = cls(pairs=[cls.Pair(left=1)])
    assert encode(message, 0) == b"\1" + b"\x08\3" + b"\2\1\0"
    assert decode(cls, encode(message, 0), 0) == message


def test_tagged_fields_are_sent_in_order(example: type[Any]) -> None:
    """The encoder sorts known and unknown tagged fields by tag; the decoder gets all of them back."""
    message = example(note=2, window=example.Window(first=1), unknown_tagged_fields={3: b"c", 9: b"i"})
    encoded = encode(message, 3)
    assert encoded.endswith(b"\4" + b"\0\x09" + b"\0" * 7 + b"\1\0" + b"\3\1c" + b"\5\1\2" + b"\x09\1i")
    assert decode(example, encoded, 3) == message


def test_known_tag_among_the_unknown_is_a_mistake(example: type[Any]) -> None:
    """The encoder refuses an unknown tagged field whose tag is a known field's."""
    with pytest.raises(AssertionError, match="note"):
        encode(example(note=2, unknown_tagged_fields={5: b"\3"}), 3)


@pytest.mark.parametrize("value", [b"", b"\2\0"], ids=["too short", "too long"])
def test_known_tagged_field_has_the_size_of_its_tag(example: type[Any], value: bytes) -> None:
    """The decoder refuses a tagged field whose content is longer or shorter than its size."""
    with pytest.raises(ProtocolError):
        decode(example, encode(example(unknown_tagged_fields={5: value}), 3), 3)


def test_nested_struct_can_be_encoded_alone(example: type[Any]) -> None:
    """A nested struct can be encoded alone, so a group's record can be put together from its members' bytes."""
    partition = example.Partition(index=5)
    assert encode(partition, 1) == b"\0\0\0\5"
    assert encode(partition, 2) == b"\0\0\0\5\0"
    assert decode(example.Partition, b"\0\0\0\5\0", 2) == partition


@pytest.mark.parametrize("version", [-1, 4])
def test_unknown_version(example: type[Any], version: int) -> None:
    """Decoding an unknown version raises an error that names it; encoding one fails an assertion."""
    with pytest.raises(UnsupportedVersion) as raised:
        decode(example, b"", version)
    assert (raised.value.name, raised.value.api_key, raised.value.version) == ("Example", 99, version)
    with pytest.raises(AssertionError):
        encode(example(), version)


def test_bytes_behind_the_body_are_ignored() -> None:
    """The decoder ignores bytes behind the body, as Kafka does; `decode_from` returns the body's end."""
    message = HeartbeatRequest(group_id="g", member_id="m")
    encoded = encode(message, 4)
    assert decode(HeartbeatRequest, encoded + b"rest", 4) == message
    assert decode_from(HeartbeatRequest, encoded + b"rest", 4) == (message, len(encoded))


def test_error_says_where() -> None:
    """The error names message, version and problem, for the one log line of a closed connection."""
    with pytest.raises(ProtocolError, match=r"^HeartbeatRequest v4: HeartbeatRequest\.group_id is null$"):
        decode(HeartbeatRequest, b"\0", 4)
    with pytest.raises(ProtocolError, match=r"^HeartbeatRequest v4: cut short"):
        decode(HeartbeatRequest, b"\x05ab", 4)
    with pytest.raises(ProtocolError, match=r"^JoinGroupRequest v0: JoinGroupRequest\.protocols announces 16777216"):
        decode(JoinGroupRequest, b"\0\0" + b"\0\0\0\0" + b"\0\0" + b"\0\0" + b"\1\0\0\0", 0)
    with pytest.raises(AssertionError, match=r"^HeartbeatRequest v4: "):
        encode(HeartbeatRequest(generation_id=2**31), 4)


def run(steps: Generator[None, None, AnyValue]) -> tuple[AnyValue, int]:
    """Return the result of a generator, and how often it yielded."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


@pytest.mark.parametrize("name", NAMES)
@share(10)
@given(data=st.data())
def test_steps_do_what_one_step_does(name: str, data: st.DataObject) -> None:
    """Decoding and encoding in steps give the same message and the same bytes."""
    version = data.draw(st.sampled_from([version for other, version in MESSAGES if other == name]))
    message = data.draw(any_message(name, version))
    assert in_steps(message, version) == at_once(message, version)


@each("name, version", MESSAGES)
def test_steps_do_the_same_in_each_version(name: str, version: int) -> None:
    """The same of a message with all fields of its version."""
    message = full_message(name, version)
    assert in_steps(message, version) == at_once(message, version)


def at_once(message: Any, version: int) -> tuple[bytes, Any]:
    """The bytes of a message, and the message of these bytes."""
    data = encode(message, version)
    return data, decode(type(message), data, version)


def in_steps(message: Any, version: int) -> tuple[bytes, Any]:
    """The same in steps."""
    data = b"".join(run(encode_in_steps(message, version, BYTES_MAX))[0])
    return data, run(decode_in_steps(type(message), b"head" + data, version, 4, len(data)))[0]


def test_a_step_is_an_element() -> None:
    """Each element of an array is a step, at each depth; of a response each struct."""
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[1] * 5)
    request = OffsetFetchRequest(group_id="g", topics=[topic] * 3)
    assert run(decode_in_steps(OffsetFetchRequest, encode(request, 5), 5, 0, 100))[1] == 3
    members = [LeaveGroupResponse.MemberResponse(member_id=f"{number}") for number in range(7)]
    assert run(encode_in_steps(LeaveGroupResponse(members=members), 3, BYTES_MAX))[1] == 7


def test_all_elements_of_a_message_count() -> None:
    """The limit is for those of all arrays together, and one more than allowed raises ProtocolError."""
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[1] * 5)
    data = encode(OffsetFetchRequest(group_id="g", topics=[topic] * 3), 5)
    assert run(decode_in_steps(OffsetFetchRequest, data, 5, 0, 18))[0].group_id == "g"
    with pytest.raises(ProtocolError, match="more than 17 elements"):
        run(decode_in_steps(OffsetFetchRequest, data, 5, 0, 17))


def test_unknown_tagged_fields_of_elements_count() -> None:
    """A struct in an array may have unknown tagged fields; each counts as an element."""
    member = LeaveGroupResponse.MemberResponse(unknown_tagged_fields=dict.fromkeys(range(10), b""))
    data = encode(LeaveGroupResponse(members=[member]), 5)
    assert run(decode_in_steps(LeaveGroupResponse, data, 5, 0, 11))[0].members == [member]
    with pytest.raises(ProtocolError, match="more than 10 elements"):
        run(decode_in_steps(LeaveGroupResponse, data, 5, 0, 10))


def test_a_large_element_stays_in_parts() -> None:
    """An array within an element is not joined to one part if that would take long."""
    topics = [OffsetFetchResponse.OffsetFetchResponseTopics(name="x" * 30_000)] * 10
    groups = [OffsetFetchResponse.OffsetFetchResponseGroup(group_id="g", topics=topics)]
    parts, _ = run(encode_in_steps(OffsetFetchResponse(groups=groups), 8, BYTES_MAX))
    assert max(map(len, parts)) < JOINED_MAX


def test_an_element_that_comes_again_is_encoded_once() -> None:
    """An array that has the same struct several times has the same bytes object several times."""
    group = DescribeGroupsResponse.DescribedGroup(
        group_id="g", members=[DescribeGroupsResponse.DescribedGroupMember(client_id="c" * 1000)] * 20
    )
    parts = run(encode_in_steps(DescribeGroupsResponse(groups=[group] * 1000), 5, BYTES_MAX))[0]
    assert sum(map(len, parts)) > 20_000_000
    assert sum(map(len, {id(part): part for part in parts}.values())) < 30_000


def test_a_large_element_that_comes_again_is_a_few_parts_again() -> None:
    """An element of a thousand parts that comes ten thousand times doesn't make ten million: memory for each place."""
    members = [DescribeGroupsResponse.DescribedGroupMember(client_id="c" * 200)] * 1000
    group = DescribeGroupsResponse.DescribedGroup(group_id="g", members=members)
    data = encode(DescribeGroupsResponse(groups=[group] * 3), 5)
    parts = run(encode_in_steps(DescribeGroupsResponse(groups=[group] * 3), 5, BYTES_MAX))[0]
    assert b"".join(parts) == data
    assert len(parts) <= 3 * (len(data) // 3 // JOINED_MAX + 2)


def test_an_answer_of_too_many_bytes_is_not_built() -> None:
    """Encoding ends with the first element that is too much, whether the bytes are distinct or the same."""
    group = DescribeGroupsResponse.DescribedGroup(
        group_id="g", members=[DescribeGroupsResponse.DescribedGroupMember(client_id="c" * 1000)]
    )
    whole = encode(DescribeGroupsResponse(groups=[group]), 5)
    for groups in ([group] * 10_000, [copy.copy(group) for _ in range(10_000)]):
        steps = encode_in_steps(DescribeGroupsResponse(groups=groups), 5, 10 * len(whole))
        with pytest.raises(TooLarge, match="DescribeGroupsResponse would have more than"):
            deque(islice(steps, 25), 0)


@pytest.mark.parametrize("version", [0, 9])
@pytest.mark.parametrize("size", [COPIED_BYTES - 1, COPIED_BYTES, COPIED_BYTES + 1, 5 * COPIED_BYTES + 3])
def test_large_bytes_are_copied_in_steps(version: int, size: int) -> None:
    """Each step copies COPIED_BYTES at most; bytes that are cut short are an error, as without steps."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(range(256)) * (size // 256 + 1))
    protocol.metadata = protocol.metadata[:size]
    data = encode(JoinGroupRequest(group_id="g", protocols=[protocol]), version)
    message, steps = run(decode_in_steps(JoinGroupRequest, data, version, 0, 10))
    assert message.protocols == [protocol]
    assert steps - 1 == (0 if size <= COPIED_BYTES else -(-size // COPIED_BYTES))
    with pytest.raises(ProtocolError):
        run(decode_in_steps(JoinGroupRequest, data[:-10], version, 0, 10))
