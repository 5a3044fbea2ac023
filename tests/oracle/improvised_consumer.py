"""Random plays of the consumer protocol (KIP-848), on two servers in step.

`Duet` sends each step to one server and then to the other. What a member sends next is chosen by the seed and by what
the first server answered so far, so both get the same requests; the transcripts must be equal.

The plays leave out what a server does by its own clock: sessions and rebalance timeouts are minutes. `uniform` goes
through topics in an order of its own, so with several topics the two servers may choose other partitions, as good ones:
each second play has members that all want the same topic, and some vote for `range`. The others have `range`. Nobody
votes for `uniform`: where votes tie, each heartbeat makes an epoch in Kafka 4.4.0 (test_tied_votes.py).

In half of the plays members of the classic protocol take part. There is always one of the consumer protocol, which
only does what a good client does: a group of classic members alone would let them wait for each other.

In each eighth play members may subscribe by a regular expression. It is resolved beside the requests, so one member has
it before the first step, does what a good client does, and keeps it.

No member subscribes to nothing: if all others subscribe to the same topics, Kafka 4.4.0 takes it for one of them, and
assigns it partitions that it doesn't read. Here it gets none.

House rule: a step is a request that some client could send, however foolish.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, cast

from tests.oracle.consumer import ClassicSeat, Seat, classic_seat, grow_topic, seat, until_epoch
from tests.oracle.stage import Server, Stage
from tests.oracle.transcript import Transcript

STEP_COUNT = 80
FOLLOWS_THE_RULES = 0.6
"""The share of steps in which a member does what a good client would do."""
CLASSIC_SHARE = 0.4
"""The share of the classic members' steps, in plays that have some."""

# Name, instance id: two pairs of twins, and dynamic members.
CAST = (("a", "I"), ("b", "J"), ("c", "I"), ("d", "J"), ("e", None), ("f", None), ("g", None))
ANCHOR = "e"
# A static member's id is given by chance, and `uniform` orders members by it: it plays with `range` alone.
CLASSIC_CAST = (("h", None), ("i", None), ("k", "I"))
PARTITIONS = {"x": 4, "y": 7, "z": 1}
Subscriptions = tuple[tuple[str, ...], ...]
SUBSCRIPTIONS: Subscriptions = (("x",), ("x",), ("x", "y"), ("x", "y"), ("y",), ("x", "y", "z"), ("z", "nothing"))
REGEX = "*"
"""Among the topics of a subscription: the regular expression, for x and y."""
RACKS = (None, "r", "s")


@dataclass
class Company:
    """The members on one server's stage."""

    stage: Stage
    seats: dict[str, Seat]
    classic: dict[str, ClassicSeat]
    topics: dict[str, str]

    @classmethod
    def on(cls, stage: Stage) -> Company:
        """All members, connected, and the topics."""
        topics = {name: stage.known_topic(f"{stage.group}.{name}", count) for name, count in PARTITIONS.items()}
        seats = {name: seat(stage, name, instance=instance) for name, instance in CAST}
        classic = {name: classic_seat(stage, name, instance=instance) for name, instance in CLASSIC_CAST}
        return cls(stage, seats, classic, topics)


Step = Callable[[Company], None]


class Duet:
    """One play: the first server's answers lead."""

    def __init__(self, leader: Server, follower: Server, seed: int) -> None:
        self.random = Random(seed)
        self.stages = [Stage(server, f"duet-{seed}") for server in (leader, follower)]
        self.companies: list[Company] = []
        self.said: list[str] = []
        self.partitions = dict(PARTITIONS)
        self.votes = ("range",) if seed % 2 else (None, "range")
        self.is_mixed = seed % 4 >= 2
        self.pattern = rf"duet-{seed}\.[xy]" if seed % 8 == 5 else None
        self.has_anchor = self.is_mixed or self.pattern is not None
        self.subscriptions: Subscriptions = SUBSCRIPTIONS if seed % 2 else ((self.random.choice("xyz"),),)
        if self.pattern:
            self.subscriptions = (*SUBSCRIPTIONS, (REGEX,), (REGEX,), (REGEX, "z"))

    def play(self) -> tuple[Transcript, Transcript]:
        """Play all steps; what happened on each server."""
        try:
            self.companies = [Company.on(stage) for stage in self.stages]
            if self.pattern:
                self._do(f"{ANCHOR} joins with the regular expression", self._join_by_regex)
            elif self.is_mixed:
                self._do(*self._join(ANCHOR))
            for _ in range(STEP_COUNT):
                self._do(*self._choose())
        finally:
            for stage in self.stages:
                stage.close()
        first, second = self.stages
        return first.transcript, second.transcript

    def _do(self, said: str, step: Step) -> None:
        self.said.append(said)
        for company in self.companies:
            step(company)

    def _choose(self) -> tuple[str, Step]:
        if self.is_mixed and self.random.random() < CLASSIC_SHARE:
            return self._classic(self.random.choice("hik" if len(self.votes) == 1 else "hi"))
        name = self.random.choice([name for name, _ in CAST])
        if self.random.random() < FOLLOWS_THE_RULES or (self.has_anchor and name == ANCHOR):
            return self._rightly(name)
        choices: list[tuple[int, Callable[[str], tuple[str, Step]]]] = [
            (6, self._join),
            (6, self._beat),
            (6, self._own),
            (4, self._subscribe),
            (3, self._vote),
            (5, self._leave),
            (3, self._commit),
            (2, self._fetch),
            (1, self._grow),
            (3, self._describe),
            (1, self._remove),
        ]
        weights, makers = zip(*choices, strict=True)
        (make,) = self.random.choices(makers, weights)
        return cast("tuple[str, Step]", make(name))

    def _seat(self, name: str) -> Seat:
        return self.companies[0].seats[name]

    def _others(self) -> list[str]:
        """Members that a step may name in place of its own."""
        return [name for name, _ in CAST if not (self.has_anchor and name == ANCHOR)]

    def _rightly(self, name: str) -> tuple[str, Step]:
        """What a good client would do: join if it isn't in the group, else say what it owns."""
        member = self._seat(name)
        if member.epoch == 0 or member.topics is None:
            return self._join(name)
        return f"{name} confirms", lambda company: company.seats[name].confirm()

    def _join(self, name: str) -> tuple[str, Step]:
        chosen = self.random.choice(self.subscriptions)
        vote, rack = self.random.choice(self.votes), self.random.choice(RACKS)
        keeps = self._seat(name).topics is not None and (
            self.random.random() < 0.5 or (self.pattern is not None and name == ANCHOR)
        )

        def step(company: Company) -> None:
            member = company.seats[name]
            if not keeps:
                self._wish(company, name, chosen)
                member.assignor, member.rack = vote, rack
            member.join()

        return f"{name} joins, {'as before' if keeps else (chosen, vote, rack)}", step

    def _join_by_regex(self, company: Company) -> None:
        self._wish(company, ANCHOR, (REGEX,))
        company.seats[ANCHOR].assignor = "range"
        company.seats[ANCHOR].join()
        until_epoch(company.stage, 3)  # the vote makes one epoch, the resolution another

    def _wish(self, company: Company, name: str, chosen: tuple[str, ...]) -> None:
        """Say what a member's next full heartbeat subscribes to."""
        member = company.seats[name]
        member.topics = [company.topics.get(letter, letter) for letter in chosen if letter != REGEX]
        member.regex = self.pattern and (self.pattern if REGEX in chosen else "")

    def _vote(self, name: str) -> tuple[str, Step]:
        vote = self.random.choice(self.votes)
        return f"{name} votes for {vote}", lambda company: company.seats[name].beat(server_assignor=vote)

    def _beat(self, name: str) -> tuple[str, Step]:
        change = self._foolish(name)
        is_full = self.random.random() < 0.3
        owns = self._part(name) if self.random.random() < 0.3 else None
        rack = self.random.choice(RACKS)

        def step(company: Company) -> None:
            member = company.seats[name]
            member.rack = rack if is_full else member.rack
            owned = None if owns is None else _known(company, owns)
            (member.full if is_full else member.beat)(owns=owned, **change)

        return f"{name} beats, full {is_full}, owns {owns}, {change}", step

    def _own(self, name: str) -> tuple[str, Step]:
        owns = self._part(name)
        return f"{name} owns {owns}", lambda company: company.seats[name].beat(owns=_known(company, owns))

    def _subscribe(self, name: str) -> tuple[str, Step]:
        chosen = self.random.choice(self.subscriptions)
        full = self.random.random() < 0.5

        def step(company: Company) -> None:
            member = company.seats[name]
            self._wish(company, name, chosen)
            if full:
                member.full()
            else:
                member.beat(subscribed_topic_names=member.topics, subscribed_topic_regex=member.regex)

        return f"{name} subscribes to {chosen}, full {full}", step

    def _leave(self, name: str) -> tuple[str, Step]:
        epoch = self.random.choice((-1, -2, -2)) if self._seat(name).client.instance else -1
        change = self._foolish(name) if self.random.random() < 0.3 else {}
        change.pop("member_epoch", None)

        def step(company: Company) -> None:
            company.seats[name].leave(epoch, **change)

        return f"{name} leaves with {epoch}, {change}", step

    def _commit(self, name: str) -> tuple[str, Step]:
        if not any(member.epoch for member in self.companies[0].seats.values()):
            # A commit to a group that isn't there is answered as Kafka 3.9 does (docs/run/consumer-protocol.md).
            return self._join(name)
        topic, change = self.random.choice(list(PARTITIONS)), self._foolish(name)
        change = {_OF_COMMIT[key]: value for key, value in change.items()}
        partition, offset = self.random.randrange(PARTITIONS[topic]), len(self.said)

        def step(company: Company) -> None:
            company.seats[name].commit(company.topics[topic], offset, partitions=(partition,), **change)

        return f"{name} commits {topic}-{partition}, {change}", step

    def _fetch(self, name: str) -> tuple[str, Step]:
        topic, change = self.random.choice(list(PARTITIONS)), self._foolish(name)
        change.pop("instance_id", None)
        return f"{name} fetches {topic}, {change}", lambda company: company.seats[name].fetch(
            company.topics[topic], **change
        )

    def _grow(self, name: str) -> tuple[str, Step]:
        topic = self.random.choice(list(PARTITIONS))
        self.partitions[topic] += 1
        count = self.partitions[topic]

        def step(company: Company) -> None:
            grow_topic(company.stage, company.topics[topic], count)
            # The next topic is there when the coordinator knows what came before it.
            company.stage.topic(f"fence.{company.topics[topic]}.{count}", 1)

        return f"{topic} grows to {count}", step

    def _describe(self, name: str) -> tuple[str, Step]:
        return f"{name} describes", lambda company: company.seats[name].describe()

    def _remove(self, name: str) -> tuple[str, Step]:
        other = self.random.choice(self._others())
        by_instance = self._seat(other).client.instance is not None

        def step(company: Company) -> None:
            removed = company.seats[other]
            entry = ("", removed.client.instance) if by_instance else (removed.member_id, None)
            company.seats[name].client.send_leave(entry, version=5)
            company.seats[name].client.receive()

        return f"{name} removes {other}", step

    def _classic(self, name: str) -> tuple[str, Step]:
        """A step of a classic member: mostly what a good client does next, whatever the answers before."""
        chosen = self.random.choice(self.subscriptions)
        keeps = bool(self.companies[0].classic[name].topics) and self.random.random() < 0.7
        match self.random.randrange(12):
            case 0 | 1 | 2 | 3:
                owns: dict[str, list[int]] | None = self.random.choice((None, None, {}))

                def join(company: Company) -> None:
                    member = company.classic[name]
                    if not keeps:
                        member.topics = _named(company, chosen)
                    member.join(owns=owns)

                return f"{name} joins, {'as before' if keeps else chosen}, owns {owns}", join
            case 4 | 5 | 6:
                return f"{name} syncs", lambda company: company.classic[name].sync()
            case 7 | 8:
                return f"{name} beats", lambda company: company.classic[name].client.heartbeat()
            case 9:
                late = self.random.choice((-1, 1))

                def beat(company: Company) -> None:
                    client = company.classic[name].client
                    client.heartbeat(generation_id=client.generation + late)

                return f"{name} beats with another generation, {late}", beat
            case 10:
                return f"{name} commits", lambda company: company.classic[name].client.commit(company.topics["x"], 1)
            case _:
                return f"{name} leaves", lambda company: company.classic[name].leave()

    def _part(self, name: str) -> dict[str, list[int]]:
        """A part of what a member was assigned, sometimes something else; topics by their letters."""
        assigned = {topic.rpartition(".")[2]: parts for topic, parts in self._seat(name).assigned.items()}
        match self.random.randrange(6):
            case 0:
                return {}
            case 1:
                return {topic: parts[1:] for topic, parts in assigned.items() if parts[1:]}
            case 2:
                topic = self.random.choice(list(PARTITIONS))
                return {topic: list(range(PARTITIONS[topic]))}
        return assigned

    def _foolish(self, name: str) -> dict[str, Any]:
        """Mostly nothing; sometimes another epoch, member or instance."""
        if self.random.random() < 0.6:
            return {}
        member = self._seat(name)
        return self.random.choice(
            [
                {"member_epoch": member.epoch + 1},
                {"member_epoch": max(member.epoch - 1, 1)},
                {"member_id": self.random.choice(self._others())},
                {"instance_id": self.random.choice((None, "I", "J", "K"))},
            ]
        )


_OF_COMMIT = {
    "member_epoch": "generation_id_or_member_epoch",
    "member_id": "member_id",
    "instance_id": "group_instance_id",
}


def _named(company: Company, letters: tuple[str, ...]) -> list[str]:
    return [company.topics.get(letter, letter) for letter in letters]


def _known(company: Company, owned: dict[str, list[int]]) -> dict[str, list[int]]:
    return {company.topics[letter]: parts for letter, parts in owned.items()}
