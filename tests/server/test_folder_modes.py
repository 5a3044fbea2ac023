"""Everything that a server ever writes into its data folder is its user's alone, whatever the umask allows."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from pathlib import Path
from stat import S_IMODE, S_IRWXG, S_IRWXO
from typing import Any

from coordinator.log.segments.tail import LAST_CUT
from coordinator.security.acls import Kind, Operation
from protocol.messages import (
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteTopicsRequest,
    InitProducerIdRequest,
)
from tests.server.requests.test_acls import STANDARD, SUPER, rule
from tests.server.requests.test_credentials import upsertion
from tests.server.test_supervisor import (
    ON_0,
    ON_1,
    produce_to_all,
    seat,
    set_config,
    topic_request,
    topics_at,
    wait_until_gone,
)
from tests.support.polled import polled
from tests.support.raw import ask
from tests.support.requests import commit_request
from tests.support.tenure import Tenure

SETTINGS: dict[str, str | int] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 2,
    "offsets.topic.segment.bytes": 2_000,
    "log.cleaner.backoff.ms": 1,
    "log.cleaner.min.cleanable.ratio": "0.3",
    "tenure.topics": "orders:2",
}


class Seen:
    """Looks at a folder again and again, from a thread, so that files which are there for a short time are seen too.

    modes: of each file and folder that was there, by its name, with all that it had.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.modes: dict[str, set[int]] = {}

    def look(self) -> None:
        """Look once."""
        for path in (self._folder, *self._folder.rglob("*")):
            with suppress(FileNotFoundError):
                self.modes.setdefault(str(path.relative_to(self._folder)), set()).add(S_IMODE(path.lstat().st_mode))

    def looking(self) -> AbstractContextManager[None]:
        """Look all the time during a block."""

        def look() -> None:
            with suppress(OSError):  # a folder that goes meanwhile
                self.look()

        return polled(look)


def commit_until_compacted(tenure: Tenure) -> None:
    """Commit one offset again and again, until the log of the group was compacted."""
    port, offset = tenure.ports[0], 0
    mark = tenure.mark()
    while not tenure.events("compacted", since=mark):
        offset += 1
        answer: Any = ask(port, commit_request(ON_0, {("orders", 0): offset}), 8)
        assert answer.topics[0].partitions[0].error_code == 0


def tear(folder: Path) -> None:
    """Leave half a batch at the end of each newest segment of the groups' log, as a power cut may."""
    for each in folder.glob("__consumer_offsets-*"):
        newest = max(each.glob("*.log"))
        with newest.open("ab") as file:
            file.write(b"\0" * 40)


def test_nobody_else_reads_anything_of_a_busy_servers_life(tmp_path: Path) -> None:
    """Of two workers that begin with umask 000: locks, journals, segments, topics, users, and what is replaced."""
    properties = f"{STANDARD}\n{SUPER}\n"
    tenure = Tenure(SETTINGS, directory=tmp_path, arguments=["--workers", "2"], properties=properties, umask=0)
    tenure.data_dir = tmp_path / "above" / "data"
    seen = Seen(tmp_path / "above")
    with seen.looking(), tenure:
        seat(tenure.ports[1], ON_1)
        ask(tenure.ports[1], topic_request("more", "gone"), 5)
        for setting, value in (("log.segment.bytes", "1000"), ("message.max.bytes", "500")):
            set_config(tenure.ports[1], "", setting, value)
        for _ in range(10):
            produce_to_all(tenure.ports[0], "more", 1)
        ask(tenure.ports[0], InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000), 1)
        ask(tenure.ports[0], AlterUserScramCredentialsRequest(upsertions=[upsertion("alice")]), 0)
        ask(tenure.ports[1], CreateAclsRequest(creations=[rule(Operation.READ, Kind.TOPIC, "more")]), 3)
        commit_until_compacted(tenure)
        pids = [event["pid"] for event in tenure.events("worker_started")]
        tenure.kill()
        wait_until_gone(pids)
        tear(tenure.data_dir)
        tenure.port = 0
        tenure.start()
        ask(tenure.ports[1], DeleteTopicsRequest(topic_names=["gone"], timeout_ms=60_000), 5)
        assert "gone" not in topics_at(tenure.ports[0])
        commit_until_compacted(tenure)
        assert tenure.stop() == 0
    seen.look()
    names = {Path(name).name for name in seen.modes}
    assert {"data", "topics.json", ".lock", "meta.properties", LAST_CUT} <= names, names
    assert {name: mode for name, modes in seen.modes.items() for mode in modes if mode & (S_IRWXG | S_IRWXO)} == {}
