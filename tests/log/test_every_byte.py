"""Cuts and changes a server's log at each byte, and tests what the next server makes of it.

Servers and clients are real, in the test's process. After each answer, the clients note what they know and how long the
file is.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from protocol.messages import (
    DescribeGroupsRequest,
    JoinGroupResponse,
    OffsetFetchRequest,
)
from protocol.records.walk import decode_batches
from schemas.errors import ErrorCode
from tests.log.servers import running
from tests.server.harness import Peer, join_request, seat
from tests.support.length import rounds
from tests.support.requests import commit_request, leave_request

STRIDE = rounds(5, 1, 1)
"""Bytes from one to the next that is tried; prime to 8, so that each bit of a byte has its turn."""
SEGMENT = Path("__consumer_offsets-0", "00000000000000000000.log")


class Told(NamedTuple):
    """The clients' knowledge of group g: the seat of its static member, and the committed offsets by partition."""

    member_id: str = ""
    assignment: bytes = b""
    offsets: dict[int, int] = {}


class History(NamedTuple):
    """The bytes of the log, and the clients' knowledge by the length of the log at that time."""

    content: bytes
    told: dict[int, Told]


async def commit(peer: Peer, joined: JoinGroupResponse, offsets: dict[int, int]) -> None:
    """Commit offsets as the member."""
    orders = {("orders", partition): offset for partition, offset in offsets.items()}
    request = commit_request("g", orders, joined.generation_id, joined.member_id, "i")
    answer = await peer.ask(request, 8)
    assert {partition.error_code for partition in answer.topics[0].partitions} == {ErrorCode.NONE}


async def found(peer: Peer) -> Told | int:
    """Ask for the group; return the answers, or the error code."""
    group = (await peer.ask(DescribeGroupsRequest(groups=["g"]), 5)).groups[0]
    fetched = await peer.ask(OffsetFetchRequest(group_id="g", topics=None), 7)
    assert fetched.error_code == group.error_code
    if group.error_code:
        return int(group.error_code)
    offsets = {each.partition_index: each.committed_offset for topic in fetched.topics for each in topic.partitions}
    for member in group.members:
        return Told(member.member_id, bytes(member.member_assignment), offsets)
    return Told(offsets=offsets)


@pytest.fixture
async def history(tmp_path: Path) -> History:
    """Write a generation, commits, a static restart, a commit, and a leave of all."""
    told: dict[int, Told] = {0: Told()}
    path = tmp_path / "history" / SEGMENT

    def note(known: Told) -> None:
        told[path.stat().st_size] = known

    async with running(tmp_path / "history", "tenure.journal.enable=false") as (_, peer):  # or the file lags behind
        joined = await seat(peer, "g", "i")
        answer = await found(peer)
        assert isinstance(answer, Told)
        known = Told(joined.member_id, answer.assignment)
        note(known)
        for offsets in ({0: 5}, {0: 6, 1: 7}):
            await commit(peer, joined, offsets)
            known = known._replace(offsets=known.offsets | offsets)
            note(known)
        joined = await peer.ask(join_request("g", instance="i"), 9)
        assert joined.error_code == ErrorCode.NONE
        known = known._replace(member_id=joined.member_id)
        note(known)
        await commit(peer, joined, {2: 8})
        known = known._replace(offsets=known.offsets | {2: 8})
        note(known)
        assert (await peer.ask(leave_request("g", ("", "i")), 4)).error_code == ErrorCode.NONE
        note(Told(offsets=known.offsets))
    content = path.read_bytes()
    assert [0, *(batch.position + batch.header.size for batch in decode_batches(content))] == sorted(told)
    return History(content, told)


@pytest.mark.rounds
async def test_cut_at_each_byte(tmp_path: Path, history: History) -> None:
    """Wherever in its last three batches the log ends, the server has exactly what it had acknowledged by then."""
    ends = sorted(history.told)
    path = tmp_path / "data" / SEGMENT
    path.parent.mkdir(parents=True)
    for size in range(ends[-4], ends[-1] + 1, STRIDE):
        path.write_bytes(history.content[:size])
        async with running(tmp_path / "data") as (server, peer):
            end = max(end for end in ends if end <= size)
            assert await found(peer) == history.told[end]
            assert len(server.events("tail_cut")) == (end < size)
            assert path.stat().st_size == end


@pytest.mark.rounds
async def test_flipped_at_each_byte(tmp_path: Path, history: History) -> None:
    """If a bit of any byte of two batches flips, the server refuses the partition, logs the file, and changes no byte.

    A changed offset or epoch that still grows is under no CRC and makes sense, so the server serves it.
    """
    ends = sorted(history.told)
    path = tmp_path / "data" / SEGMENT
    path.parent.mkdir(parents=True)
    served = 0
    for at in range(ends[1], ends[3], STRIDE):
        flipped = bytearray(history.content)
        flipped[at] ^= 1 << at % 8
        path.write_bytes(flipped)
        async with running(tmp_path / "data") as (server, peer):
            answer = await found(peer)
            damage = server.events("partition_damaged")
        if isinstance(answer, Told):
            start = max(end for end in ends if end <= at)
            assert at - start in {*range(8), *range(12, 16)}
            assert answer == history.told[ends[-1]]
            served += 1
            continue
        assert answer == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert [line["file"] for line in damage] == [str(path)]
        assert path.read_bytes() == flipped
    assert served < 2 * 12
