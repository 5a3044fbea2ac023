"""Consumers as processes, and waits for their events.

A fleet starts workers (worker.py), reads their lines, and lets a test wait until a condition holds for all of them. It
also checks that no topic partition has two owners at one time, which no single consumer can see. Every rebalance
callback carries the machine's monotonic clock, so the spans in which a consumer owned a partition are intervals of one
clock; an owner's span ends where its revoked or lost callback, its close or its SIGKILL starts.

House rule: every wait has a deadline, and a failure shows each consumer's last events.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.interop.client import ROOT, Ability
from tests.interop.clients import CLIENTS
from tests.interop.worker import Consumed, Membership, Record, Settings
from tests.support.patience import WITHIN_S
from tests.support.preloaded import popen

Event = dict[str, Any]


class ConsumerProcess:
    """One worker process and all its lines."""

    def __init__(self, client: str, settings: Settings, changed: threading.Condition) -> None:
        self.client = client
        self.settings = settings
        self.events: list[Event] = []
        self.killed_at: float | None = None
        self._changed = changed
        self._process = popen(
            [*CLIENTS[client].command(), json.dumps(dataclasses.asdict(settings))],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._stderr: list[str] = []
        self._readers = [threading.Thread(target=self._read_events), threading.Thread(target=self._read_stderr)]
        for reader in self._readers:
            reader.start()

    @property
    def membership(self) -> Membership:
        """Return the consumer's last reported membership; generation -1 before the first one."""
        for event in reversed(self.events):
            if event["event"] == "membership":
                return Membership(event["generation"], event["member_id"], tuple(event["partitions"]))
        return Membership(-1, "", ())

    @property
    def version(self) -> str | None:
        """Return the client's version from its first event."""
        return next((str(event["version"]) for event in self.events if event["event"] == "started"), None)

    @property
    def consumed(self) -> list[Consumed]:
        """Return the records that it reported, by partition and offset, without those that a rebalance repeated."""
        places = {
            (partition, offset): Consumed(partition, offset, Record.from_json(record))
            for event in self.named("records")
            for partition, offset, record in event["records"]
        }
        return [places[place] for place in sorted(places)]

    @property
    def running(self) -> bool:
        """Return whether the process lives."""
        return self._process.poll() is None

    def named(self, name: str, since: float = 0.0) -> list[Event]:
        """Return its events of that name, since a time of the monotonic clock."""
        return [event for event in self.events if event["event"] == name and event["at"] >= since]

    def tell(self, do: str, **fields: Any) -> None:
        """Give a command."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((json.dumps({"do": do, **fields}) + "\n").encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            self.join()
            raise AssertionError(f"ended by itself: {self.describe()}") from None

    def kill(self) -> None:
        """SIGKILL: no leave, no goodbye."""
        self.killed_at = time.monotonic()
        self._process.send_signal(signal.SIGKILL)
        self.join()

    def send_signal(self, number: signal.Signals) -> None:
        """Freeze it or let it go on."""
        self._process.send_signal(number)

    def join(self) -> int:
        """Wait for the end of the process and of its output; returns its exit code."""
        try:
            code = self._process.wait(WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"did not end within {WITHIN_S:g} s: {self.describe()}") from None
        finally:
            for reader in self._readers:
                reader.join()
            for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):  # a command that came after its end
                        pipe.close()
        return code

    def describe(self) -> str:
        """Return the last events and the end of standard error, for a failure's message."""
        shown = [event for event in self.events if event["event"] not in {"polled", "records"}][-12:]
        lines = [
            f"  {event['at']:.3f} " + json.dumps({key: value for key, value in event.items() if key != "at"})
            for event in shown
        ]
        name = self.settings.group_instance_id or "dynamic"
        return "\n".join([f"{self.client} {name}", *lines, *(f"  ! {line.rstrip()}" for line in self._stderr[-15:])])

    def keep(self, path: Path) -> None:
        """Write all its events into a file, and behind them what it wrote to standard error."""
        lines = [json.dumps(event) for event in list(self.events)]
        path.write_text("".join(f"{line}\n" for line in lines) + "".join(self._stderr))

    def ownerships(self) -> Iterable[tuple[int, float, float]]:
        """Yield partition, begin and end of each span of ownership; end is infinite while it lasts."""
        begun: dict[int, float] = {}
        for event in list(self.events):
            if event["event"] == "assigned":
                for partition in event["partitions"]:
                    begun.setdefault(partition, event["at"])
            elif event["event"] in {"revoked", "lost"}:
                for partition in event["partitions"]:
                    if partition in begun:
                        yield partition, begun.pop(partition), event["at"]
            elif event["event"] in {"closing", "fatal"}:
                for partition, since in begun.items():
                    yield partition, since, event["at"]
                begun.clear()
        for partition, since in begun.items():
            yield partition, since, self.killed_at if self.killed_at is not None else float("inf")

    def _read_events(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # cut by SIGKILL
            with self._changed:
                self.events.append(event)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        self._stderr.extend(line.decode(errors="replace") for line in self._process.stderr)


def rebalanced_once(client: str, rebalances: int) -> bool:
    """Return whether the count is that of one rebalance, in a group of such clients."""
    return rebalances == 1 or (CLIENTS[client].joins_twice and rebalances > 1)


def patient(timeout_ms: int) -> dict[str, int]:
    """Settings of a member; librdkafka takes no rebalance timeout below the session timeout, so both are the same."""
    return dict.fromkeys(("session_timeout_ms", "rebalance_timeout_ms"), timeout_ms)


def ordered(records: Iterable[Record]) -> list[Record]:
    """Sort records by content, because topic partitions have no common order."""
    return sorted(records, key=lambda each: (each.key or b"", each.value or b"", each.headers))


class Fleet:
    """All consumers of a test: `with Fleet(bootstrap, topic, partition_count) as fleet`."""

    def __init__(self, bootstrap: str, topic: str, partition_count: int) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.partition_count = partition_count
        self.consumers: list[ConsumerProcess] = []
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Kill the consumers that run, and wait for the end of all."""
        for consumer in self.consumers:
            if consumer.running:
                consumer.kill()
            else:
                consumer.join()

    def start(self, client: str, group: str, **settings: Any) -> ConsumerProcess:
        """Start a consumer; settings as in worker.Settings."""
        consumer = ConsumerProcess(client, Settings(self.bootstrap, group, self.topic, **settings), self._changed)
        self.consumers.append(consumer)
        return consumer

    def wait(self, what: str, holds: Callable[[], bool], within_s: float = WITHIN_S) -> None:
        """Wait until it holds; check again after each event of any consumer."""
        with self._changed:
            if self._changed.wait_for(holds, within_s):
                return
        said = "\n".join(consumer.describe() for consumer in self.consumers)
        raise AssertionError(f"{what}: not within {within_s:g} s\n{said}")

    def wait_for_event(
        self, consumer: ConsumerProcess, name: str, since: float = 0.0, within_s: float = WITHIN_S
    ) -> Event:
        """Return the first event of that name since a time; fail at once if the process ends without it."""
        self.wait(name, lambda: bool(consumer.named(name, since)) or not consumer.running, within_s)
        found = consumer.named(name, since)
        if not found and not consumer.running:
            consumer.join()  # it may have been its last event
            found = consumer.named(name, since)
        assert found, f"ended without {name}: {consumer.describe()}"
        return found[0]

    def wait_until_shared(self, members: Sequence[ConsumerProcess]) -> int:
        """Wait until all are in one generation, own each partition once, and each owns one; returns the generation."""
        self.wait(
            f"{len(members)} members share {self.topic}",
            lambda: self.shared(members) or not all(member.running for member in members),
        )
        for member in members:
            assert member.running, f"ended by itself: {member.describe()}"
        return members[0].membership.generation

    def shared(self, members: Sequence[ConsumerProcess]) -> bool:
        """Return whether that holds; see `wait_until_shared`."""
        memberships = [member.membership for member in members]
        owned = sorted(partition for membership in memberships for partition in membership.partitions)
        return (
            len({membership.generation for membership in memberships}) == 1
            and memberships[0].generation > 0
            and all(membership.partitions for membership in memberships)
            and owned == list(range(self.partition_count))
        )

    def wait_while_polling(self, members: Sequence[ConsumerProcess], for_s: float) -> None:
        """Wait until each has polled that much later than now, so that heartbeats and fetches have come and gone."""
        later = time.monotonic() + for_s
        self.wait(
            f"all poll for {for_s:g} s",
            lambda: all(member.named("polled", later) for member in members),
            for_s + WITHIN_S,
        )

    def stay_away(self, consumer: ConsumerProcess) -> None:
        """End a static member without a LeaveGroup: close it, or kill it where closing means to leave."""
        if Ability.STAY in CLIENTS[consumer.client].cannot:
            consumer.kill()
        else:
            self.close(consumer)

    def close(self, consumer: ConsumerProcess) -> None:
        """Close as the client does, and wait for the end of its process."""
        consumer.tell("close")
        self.wait_for_event(consumer, "closed")
        assert consumer.join() == 0, consumer.describe()

    def commit(self, consumer: ConsumerProcess, offsets: dict[int, tuple[int, str]]) -> Event:
        """Commit and wait for the answer: a `committed` or `commit_failed` event."""
        since = time.monotonic()
        consumer.tell("commit", offsets=offsets)

        def answers() -> list[Event]:
            return consumer.named("committed", since) + consumer.named("commit_failed", since)

        self.wait("commit is answered", lambda: bool(answers()))
        return answers()[0]

    def produce(self, consumer: ConsumerProcess, records: Sequence[Record], compression: str = "none") -> None:
        """Produce to the topic and wait until all are acknowledged."""
        since = time.monotonic()
        consumer.tell("produce", records=[each.to_json() for each in records], compression=compression)
        self.wait_for_event(consumer, "produced", since)

    def wait_until_consumed(self, consumer: ConsumerProcess, count: int) -> list[Record]:
        """Wait for that many records; returns all records of the consumer, in the order of `ordered`."""

        def places() -> set[tuple[int, int]]:
            return {(each[0], each[1]) for event in consumer.named("records") for each in event["records"]}

        self.wait(f"{count} records are consumed", lambda: len(places()) >= count)
        return ordered(each.record for each in consumer.consumed)

    def read_committed(self, consumer: ConsumerProcess, partitions: Iterable[int]) -> dict[int, tuple[int, str] | None]:
        """Return the committed offsets as the consumer reads them."""
        since = time.monotonic()
        consumer.tell("read_committed", partitions=list(partitions))
        offsets = self.wait_for_event(consumer, "read_committed", since)["offsets"]
        return {int(partition): None if value is None else (value[0], value[1]) for partition, value in offsets.items()}

    def double_ownerships(self) -> list[str]:
        """Return each overlap of two owners of one partition in a group; empty without any."""
        spans: dict[tuple[str, int], list[tuple[float, float, str]]] = {}
        for number, consumer in enumerate(self.consumers):
            for partition, begin, end in consumer.ownerships():
                spans.setdefault((consumer.settings.group, partition), []).append((begin, end, f"consumer {number}"))
        found = []
        for (group, partition), owners in spans.items():
            owners.sort()
            for (_, end, first), (begin, _, second) in itertools.pairwise(owners):
                if begin < end:
                    found.append(f"{group} {partition}: {second} at {begin:.3f}, {first} until {end:.3f}")
        return found
