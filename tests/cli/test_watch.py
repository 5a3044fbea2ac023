"""`tenure watch`: what happens is printed as it happens, until Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from protocol.messages import JoinGroupRequest
from tests.support.raw import Connection
from tests.support.tenure import Tenure, tenure_command, wait_until

WITHIN_S = 30.0


@contextmanager
def watching(server: Tenure, folder: Path, *arguments: str) -> Iterator[Callable[[], str]]:
    """`tenure watch` in a process of its own: what it has printed by now; it ends well when it is interrupted."""
    printed = folder / "watch.out"
    command = [*tenure_command(), "watch", *arguments, "--bootstrap-server", server.bootstrap]
    with printed.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            yield printed.read_text
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(WITHIN_S) == 0, printed.read_text()


def join(server: Tenure, group: str, connection: Connection) -> None:
    """A static member joins, and waits for nobody."""
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        group_instance_id="i",
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\x00\x00\x00\x00\x00\x00")],
    )
    assert connection.ask(request, 5).error_code == 0  # type: ignore[attr-defined]
    assert server.running


def test_what_happens_is_printed_as_it_happens(tmp_path: Path) -> None:
    """Of one group, in words; what was before is not repeated. As JSON, of all groups, an event a line."""
    with Tenure({"group.initial.rebalance.delay.ms": "0"}) as server, Connection(server.port, "c") as connection:
        join(server, "g", connection)
        join(server, "h", connection)
        folders = [tmp_path / name for name in ("text", "json")]
        for folder in folders:
            folder.mkdir()
        with watching(server, folders[0], "h") as text, watching(server, folders[1], "--output", "json") as lines:

            def both_look_on() -> bool:
                join(server, "g", connection)
                join(server, "h", connection)
                return "[h] " in text() and '"group": "g"' in lines()

            wait_until(both_look_on, "both have something to tell", WITHIN_S)
            told = [json.loads(line) for line in lines().splitlines()]
            assert {event["type"] for event in told} >= {"member_replaced"}
            assert all(event["version"] == 1 for event in told)
            assert "static member i is back as i-" in text() or "rebalance begins" in text()
            assert "[g] " not in text()
