"""Groups with standbys, for tests."""

from __future__ import annotations

from schemas.errors import ErrorCode
from tests.group.harness import SESSION_MS, Bench, Peer

HEARTBEAT_MS = 3_000


def beats(*peers: Peer, ms: int = SESSION_MS + 1) -> None:
    """Time passes while these peers send heartbeats."""
    for _ in range(0, ms, HEARTBEAT_MS):
        peers[0].bench.advance(HEARTBEAT_MS)
        for peer in peers:
            peer.heartbeat()


def with_standby(*names: str, size: int = 2, **says: object) -> tuple[Bench, list[Peer]]:
    """A Stable group of `size` dynamic members; the others of `names` wait as standbys and have synced."""
    bench = Bench()
    bench.seats(size)
    peers = [bench.dynamic(name, **says) for name in names]
    bench.settle(*peers[:size])
    for peer in peers[size:]:
        peer.enter()
        peer.sync()
    return bench, peers


def take_seat(peer: Peer) -> None:
    """A standby hears that it has a seat, joins and syncs."""
    assert peer.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    peer.join()
    peer.sync(assignments={})
