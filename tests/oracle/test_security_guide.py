"""The steps of docs/secure/ten-minutes.md, run as they stand there, with Kafka's own tools."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.apache import TOOL_HEAP, jars
from tests.support.patience import WITHIN_S
from tests.support.tenure import ports_in_a_row, tenure_command

pytestmark = pytest.mark.oracle

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs/secure/ten-minutes.md"
PORT = "9093"
TOOLS = {
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls.sh": "kafka.admin.AclCommand",
    "kafka-console-producer.sh": "kafka.tools.ConsoleProducer",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}


def blocks(kind: str) -> list[str]:
    """The commands of the page's blocks of that kind."""
    found = re.findall(rf"^ *```{kind}\n(.*?)^ *```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [re.sub(r"^   ", "", block, flags=re.MULTILINE) for block in found]


def tools(folder: Path) -> Path:
    """A folder with Kafka's scripts, our command and this Python."""
    folder.mkdir()
    commands = {name: f'java {TOOL_HEAP} -cp "{jars()}/*" {main} "$@"' for name, main in TOOLS.items()}
    commands["tenure"] = f'{shlex.join(tenure_command())} "$@"'
    commands["python"] = f'{shlex.quote(sys.executable)} "$@"'
    for name, command in commands.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\nexec {command}\n")
        path.chmod(0o755)
    return folder


@contextmanager
def served(command: str, folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """Run the server's command until the block ends."""
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready "), (folder / "log").read_text()
            yield
        finally:
            process.terminate()
            process.communicate(timeout=WITHIN_S)


def test_the_guide(kafka_is_here: None, tmp_path: Path) -> None:
    """Each command succeeds, alice reads what admin sent, and doesn't get what nobody allowed her."""
    port = str(ports_in_a_row(1))
    environment = os.environ | {"PATH": f"{tools(tmp_path / 'bin')}:{os.environ['PATH']}"}
    (tmp_path / "examples").symlink_to(ROOT / "examples")

    def run(block: str) -> str:
        script = block.replace(PORT, port)
        done = subprocess.run(
            ["bash", "-euc", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    make, *steps = blocks("sh")
    (serve,) = blocks("sh serve")
    run(make.replace("make.py secure", f"make.py secure --port {port}"))
    assert (tmp_path / "secure").stat().st_mode & 0o077 == 0
    settings = tmp_path / "secure" / "server.properties"
    settings.write_text(settings.read_text().replace("SASL_SSL://:", "SASL_SSL://127.0.0.1:"))
    with served(serve, tmp_path, environment):
        said = [run(step) for step in steps]
    assert len(said) == 3
    assert "hello" in said[1]
    assert "GROUP_AUTHORIZATION_FAILED" in said[2]
