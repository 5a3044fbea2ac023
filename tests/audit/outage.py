"""A life of two groups that each view has to count alike: restarts, an outage, rejoins, a takeover, a lost rebalance.

House rule: `WANTED` is what happened, told by hand; no view is asked for it.
"""

from __future__ import annotations

from coordinator.client.client import Client
from coordinator.client.events import EventReader
from coordinator.story.entries import Rebalance, Timeline
from schemas.errors import ErrorCode
from tests.support.patience import WITHIN_S
from tests.support.scripted import Member, hang_up, settle
from tests.support.tenure import Tenure, wait_until

SETTINGS = {"group.initial.rebalance.delay.ms": "300", "tenure.http": "127.0.0.1:0"}
GROUP, QUIET = "busy", "quiet"

WANTED: dict[str, dict[str, int]] = {
    # The first one, one that the outage interrupted, and five of a dynamic member that comes, goes and comes.
    GROUP: {"rebalance": 7, "static_restart": 2, "static_rejoin": 1, "takeover": 1},
    QUIET: {"rebalance": 1, "static_restart": 0, "static_rejoin": 0, "takeover": 0},
}

SEATS = ("w0", "w1", "w2")


def live(server: Tenure) -> None:
    """Let it happen."""
    seats = {name: _static(server, name) for name in SEATS}
    settle(*seats.values())
    settle(Member(server.port, QUIET, "q", 9))
    seats["w0"] = _again(server, "w0")  # a restart
    # A rebalance that waits for members while the server is killed, once its beginning is in the log of events.
    newcomer = Member(server.port, GROUP, "newcomer", 9)
    newcomer.send_join()
    wait_until(lambda: _is_told(server), "the open rebalance is told", WITHIN_S)
    server.kill()
    hang_up()
    server.start()
    seats["w1"] = _again(server, "w1")  # it only rejoins: the server has not heard of it since the outage
    for name in ("w0", "w2"):
        seats[name] = _same(server, seats[name])
    assert seats["w2"].heartbeat() == ErrorCode.NONE
    seats["w2"] = _again(server, "w2")  # a restart
    former = seats["w1"]
    seats["w1"] = _again(server, "w1")  # a takeover: the former program still runs
    assert former.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    for _ in range(2):
        newcomer = _joins(server, seats)
        newcomer.leave()
        settle(*seats.values())
    _joins(server, seats)


def _static(server: Tenure, name: str) -> Member:
    return Member(server.port, GROUP, name, 9, instance=name)


def _again(server: Tenure, name: str) -> Member:
    """A client without a member id takes the seat of `name`."""
    member = _static(server, name)
    member.send_join()
    assert member.receive_join().error_code == ErrorCode.NONE
    return member


def _same(server: Tenure, former: Member) -> Member:
    """The same client on a new connection, as after an outage that its session outlasted."""
    member = _static(server, former.name)
    member.member_id, member.generation = former.member_id, former.generation
    return member


def _joins(server: Tenure, seats: dict[str, Member]) -> Member:
    """A dynamic member joins, and all others join again."""
    newcomer = Member(server.port, GROUP, "newcomer", 9)
    newcomer.send_join()
    settle(*seats.values(), newcomer)
    return newcomer


def _is_told(server: Tenure) -> bool:
    """Whether the topic of events has the beginning of a rebalance that is under way."""
    with Client(server.bootstrap) as client:
        timeline = Timeline(GROUP).add_all(EventReader(client, GROUP).read())
    return any(isinstance(entry, Rebalance) and entry.outcome is None for entry in timeline.entries)
