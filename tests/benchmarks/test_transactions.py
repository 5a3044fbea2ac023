"""A transaction counts only if its three answers are successes. The next one has the epoch of the last answer."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.driver import Script
from benchmarks.members import UnexpectedAnswer
from benchmarks.transactions import COMMIT, END, PRODUCE, Producer
from protocol.header import encode_response
from protocol.messages import API_KEYS, EndTxnResponse, Message, ProduceResponse, TxnOffsetCommitResponse
from schemas.errors import ErrorCode
from tests.support.decoded import decode_request

NONE, AGAIN = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS


def produced(error: ErrorCode = NONE) -> bytes:
    """An answer to Produce."""
    partition = ProduceResponse.PartitionProduceResponse(error_code=error, base_offset=0)
    topic = ProduceResponse.TopicProduceResponse(name="t", partition_responses=[partition])
    return encode_response(API_KEYS["Produce"], PRODUCE, 0, ProduceResponse(responses=[topic]))


def committed(error: ErrorCode = NONE) -> bytes:
    """An answer to TxnOffsetCommit."""
    partition = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(error_code=error)
    topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(name="t", partitions=[partition])
    return encode_response(API_KEYS["TxnOffsetCommit"], COMMIT, 0, TxnOffsetCommitResponse(topics=[topic]))


def ended(epoch: int, error: ErrorCode = NONE) -> bytes:
    """An answer to EndTxn."""
    answer = EndTxnResponse(error_code=error, producer_id=7, producer_epoch=epoch)
    return encode_response(API_KEYS["EndTxn"], END, 0, answer)


def asked(request: bytes | float) -> Any:
    """A request that a script sends."""
    assert isinstance(request, bytes)
    return decode_request(request[4:])[1]


def test_the_next_transaction_has_the_epoch_of_the_last_answer() -> None:
    """A transaction is counted behind its last answer."""
    took: list[float] = []
    script = Producer("a", "t", 0).transactions(took)
    requests: list[Message] = [asked(next(script))]
    for answer in (produced(), committed(), ended(3), produced()):
        assert len(took) == (len(requests) > 3)
        requests.append(asked(script.send(answer)))
    names = [request.NAME.removesuffix("Request") for request in requests]
    assert names == ["Produce", "TxnOffsetCommit", "EndTxn", "Produce", "TxnOffsetCommit"]
    assert (requests[4].producer_id, requests[4].producer_epoch) == (7, 3)  # type: ignore[attr-defined]


def test_what_may_be_tried_again_is() -> None:
    """The markers of the transaction before may be missing: the same request goes out again, a moment later."""
    script: Script = Producer("a", "t", 0).transaction()
    first = next(script)
    assert isinstance(script.send(produced(AGAIN)), float)
    assert next(script) == first


@pytest.mark.parametrize(
    "answers", [[produced(ErrorCode.PRODUCER_FENCED)], [produced(), committed(), ended(0, ErrorCode.INVALID_TXN_STATE)]]
)
def test_any_other_error_ends_the_work(answers: list[bytes]) -> None:
    """No figure counts refusals."""
    script: Script = Producer("a", "t", 0).transaction()
    next(script)
    *good, bad = answers
    for answer in good:
        script.send(answer)
    with pytest.raises(UnexpectedAnswer, match=r": error \d+$"):
        script.send(bad)
