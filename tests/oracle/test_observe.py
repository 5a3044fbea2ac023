"""`tenure observe` beside an unmodified Apache Kafka with real consumers, over a restart, and with ACLs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.cli.conftest import at, make_app, run_app
from tests.observe.test_observer import observing
from tests.observe.test_rights import GROUP, PLAIN, SECURED, consuming, observe_with_rights
from tests.support.apache import AUTHORIZER, VERSION_44, ApacheKafka
from tests.support.certificates import make_certificates
from tests.support.patience import WITHIN_S
from tests.support.tenure import tenure_command, wait_until

pytestmark = pytest.mark.oracle


@pytest.mark.usefixtures("kafka_is_here")
def test_the_page_tells_why_a_group_of_kafka_rebalanced(tmp_path: Path) -> None:
    """Joins and a leave have their causes on the page, before and after the broker's restart, and after a restore."""
    with ApacheKafka() as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("orders", 6, 1)])["orders"].result(WITHIN_S)
        with (
            observing(kafka.bootstrap, tmp_path, "--events", "topic", "--broker-log", str(kafka.log_file)) as observer,
            consuming(kafka.bootstrap, "one"),
        ):
            (first,) = observer.entries(GROUP, 1)
            assert (first["cause"]["kind"], first["cause"]["client_id"]) == ("member_joined", "one")
            kafka.stop()
            backup = shutil.copytree(kafka.log_dir, tmp_path / "backup")
            wait_until(lambda: "cluster_away" in observer.lines, "a line", WITHIN_S)
            kafka.start()
            wait_until(lambda: "cluster_back" in observer.lines, "a line", WITHIN_S)
            with consuming(kafka.bootstrap, "two"):
                joined = _newest(observer, members=2)
                assert (joined["cause"]["kind"], joined["cause"]["client_id"]) == ("member_joined", "two")
            gone = _newest(observer, members=1)
            assert gone["cause"]["client_id"] == "two"
            assert (gone["cause"]["kind"], gone["cause"]["told"]) == ("member_left", True)
            assert gone["moved_partitions"] == 3
            # The page's answer about a group may be 2 s old (asking.FRESH_S).
            wait_until(lambda: observer.get(f"/groups/{GROUP}")["state"] == "Stable", "a stable group", WITHIN_S)
            # `explain` and `watch` read the topic that the observer writes: it has what a broker told.
            causes = [entry["cause"]["kind"] for entry in observer.entries(GROUP, 3)]
            told = wait_until(lambda: _explained(kafka.bootstrap, len(causes)), "the events", WITHIN_S)
            assert [entry["cause"]["kind"] for entry in told] == causes
            assert told[-1]["cause"]["told"]
            with _watching(kafka.bootstrap, tmp_path) as printed, consuming(kafka.bootstrap, "three"):
                wait_until(lambda: "rebalance_ended" in printed.read_text(), "a rebalance", WITHIN_S)
            _newest(observer, members=1)
            # The folder comes from a backup: what was read since is gone, and offsets are given again.
            kafka.kill()
            shutil.rmtree(kafka.log_dir)
            shutil.copytree(backup, kafka.log_dir)
            kafka.start()
            wait_until(lambda: "log_was_cut" in observer.lines, "a line", WITHIN_S)
            with consuming(kafka.bootstrap, "four"):
                joined = _newest(observer, members=2)
                assert "four" in {cause["client_id"] for cause in joined["causes"]}
                assert joined["generation_before"] < gone["generation_before"] + 3
        said = [line for line in observer.lines if line.startswith("cluster_")]
        assert said == ["cluster_away", "cluster_back"] * 2


def _explained(bootstrap: str, count: int) -> list[dict[str, Any]] | None:
    """The timeline of the group that `explain` reads from the topic of events, once it is so long."""
    answer = run_app(make_app("explain"), "explain", GROUP, "--output", "json", *at(bootstrap)).json
    timeline: list[dict[str, Any]] = answer["timeline"]
    assert not answer["inferred"]
    return timeline if len(timeline) >= count else None


@contextmanager
def _watching(bootstrap: str, folder: Path) -> Iterator[Path]:
    """The file with the output of `watch`, which runs until the block ends."""
    printed = folder / "watch.out"
    command = [*tenure_command(), "watch", GROUP, "--output", "json", *at(bootstrap)]
    with printed.open("wb") as out, subprocess.Popen(command, stdout=out) as process:
        try:
            yield printed
        finally:
            process.kill()


def _newest(observer: Any, members: int) -> dict[str, Any]:
    """The newest rebalance, once it led to so many members."""

    def found() -> dict[str, Any] | None:
        entry: dict[str, Any] = observer.entries(GROUP, 1)[-1]
        return entry if entry.get("members_after") == members else None

    return wait_until(found, f"a rebalance to {members} members", WITHIN_S)


@pytest.mark.usefixtures("kafka_is_here")
def test_the_documented_rights_are_enough(tmp_path: Path) -> None:
    """As on a server of ours (tests/observe/test_rights.py); on Kafka 4.4, over TLS, and with both kinds of groups."""
    files = make_certificates(tmp_path / "certificates")
    properties = SECURED.format(module=PLAIN, authorizer=AUTHORIZER)
    properties += f"ssl.keystore.type=PEM\nssl.keystore.location={files.server}\n"
    with ApacheKafka(listeners={"SASL": "SASL_SSL"}, properties=properties, version=VERSION_44) as kafka:
        bootstrap = kafka.bootstrap_of("SASL")
        assert observe_with_rights(bootstrap, tmp_path, "classic", "consumer", ca=files.ca) == [1, 1]


@pytest.mark.usefixtures("kafka_is_here")
def test_the_page_counts_what_explain_counts(tmp_path: Path) -> None:
    """On Kafka 4.4, a rebalance of the consumer protocol is one entry; a return may be a restart or a takeover."""
    with ApacheKafka(version=VERSION_44) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("orders", 6, 1)])["orders"].result(WITHIN_S)
        with observing(kafka.bootstrap, tmp_path) as observer:
            modern = {"group.protocol": "consumer"}
            with consuming(kafka.bootstrap, "one", **modern):
                _newest(observer, members=1)
                with consuming(kafka.bootstrap, "two", **modern):
                    _newest(observer, members=2)
                    # A later look at the group comes after the entry (observe.live.LOOK_S).
                    wait_until(lambda: observer.get("/overview")[0]["state"] == "Stable", "a stable group", WITHIN_S)
                _newest(observer, members=1)
            _newest(observer, members=0)
            static = {"group.id": "seats", "group.instance.id": "seat"}
            with consuming(kafka.bootstrap, "first", **static):
                observer.entries("seats", 1)
                with consuming(kafka.bootstrap, "second", **static):
                    shown = observer.entries("seats", 2)
            assert "it restarted, or a second program took its seat [inferred from the log]" in shown[1]["text"][0]
            for group in (GROUP, "seats"):
                ran = run_app(make_app("explain"), "explain", group, "--output", "json", *at(kafka.bootstrap))
                told = [(entry["type"], entry["generation"], entry.get("outcome")) for entry in ran.json["timeline"]]
                shown = observer.entries(group, len(told))
                assert [(entry["type"], entry["generation"], entry.get("outcome")) for entry in shown] == told
