"""The demo's consumer, as a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from examples.demo.consumer import CLASSIC, CONSUMER, settings
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until


def test_only_the_instance_id_makes_it_static() -> None:
    """Both rolls differ in one setting, and neither sets a client id, which would decide the assignor's order."""
    static, dynamic = settings("h:1", "g", CLASSIC, "worker-1"), settings("h:1", "g", CLASSIC, None)
    assert static.items() - dynamic.items() == {("group.instance.id", "worker-1")}
    assert dynamic.items() <= static.items()
    assert "client.id" not in static


def test_consumer_protocol_leaves_its_times_to_the_coordinator() -> None:
    """librdkafka refuses them there; everything else is the same."""
    classic, consumer = (settings("h:1", "g", protocol, "worker-1") for protocol in (CLASSIC, CONSUMER))
    assert classic.keys() - consumer.keys() == {"session.timeout.ms", "heartbeat.interval.ms"}
    assert consumer.items() - classic.items() == {("group.protocol", "consumer")}


def test_consumer_ends_when_its_starter_is_gone(tmp_path: Path) -> None:
    """A demo that SIGKILL ended leaves no consumer behind, even without a server."""
    ended = tmp_path / "ended"
    inner = f"""
import os, subprocess, sys
code = '''
import sys
from pathlib import Path
from examples.demo.consumer import main
main(sys.argv[1], "127.0.0.1:1", "g", "t")
Path({str(ended)!r}).touch()
'''
subprocess.Popen([sys.executable, "-c", code, str(os.getpid())], stderr=subprocess.DEVNULL, start_new_session=True)
"""
    subprocess.run([sys.executable, "-c", inner], check=True, timeout=WITHIN_S)
    assert wait_until(ended.exists, "consumer has ended", WITHIN_S)
