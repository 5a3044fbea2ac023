"""Commits of simple consumers, and the error of a full disk."""

from __future__ import annotations

from coordinator.log.engine import Unavailable
from protocol.messages import (
    OffsetCommitRequest,
)
from tests.server.harness import Peer
from tests.support import requests

FULL = Unavailable("No space left on device")


def commit_request(group: str, offset: int, partition: int = 0) -> OffsetCommitRequest:
    """A commit of a simple consumer."""
    return requests.commit_request(group, {("orders", partition): offset})


async def commit(peer: Peer, group: str, offset: int) -> int:
    """Commit, and return the error code."""
    answer = await peer.ask(commit_request(group, offset), 7)
    return int(answer.topics[0].partitions[0].error_code)


async def committed(peer: Peer, group: str) -> tuple[int, int]:
    """The error code and the committed offset."""
    answer = await peer.ask(requests.offsets_request(group, {"orders": [0]}), 7)
    if answer.error_code:
        return answer.error_code, -1
    return answer.error_code, answer.topics[0].partitions[0].committed_offset
