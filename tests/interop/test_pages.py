"""The consumers of docs/ that need a server end when another program takes their seat, and by Ctrl-C.

House rule: the code runs as it stands on its page, but for the server's address and an instance id.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure, wait_until

pytestmark = pytest.mark.interop

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"leader": "start/leaders-and-shards.md", "orders": "start/first-consumer.md"}
SETTINGS = {"tenure.topics": "orders:12,leader:1", "group.initial.rebalance.delay.ms": "0"}
GROUP = '"group.id": "scheduler"'


def says(output: Path, text: str) -> bool:
    """Whether the text is in the output."""
    return text in output.read_text()


def example(topic: str, tenure: Tenure) -> str:
    """The example that subscribes to a topic, for this server."""
    page = (DOCS / PAGES[topic]).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (code,) = (block for block in blocks if f'subscribe(["{topic}"]' in block)
    return str(code).replace("127.0.0.1:9092", tenure.bootstrap)


@pytest.mark.parametrize(
    ("topic", "gets"), [("leader", "I lead"), pytest.param("orders", "mine: [0, 1,", marks=pytest.mark.long)]
)
def test_an_example_ends_when_its_seat_is_taken(tmp_path: Path, topic: str, gets: str) -> None:
    """Of two copies with one instance id, the first one ends with exit code 0 and says why, and the second works on."""
    with Tenure(SETTINGS) as tenure:
        code = example(topic, tenure)
        code = code.replace(GROUP, f'{GROUP}, "group.instance.id": "one"')
        assert "group.instance.id" in code
        outputs = [tmp_path / name for name in ("first", "second")]
        copies = []
        try:
            for output in outputs:
                with output.open("w") as file:
                    copies.append(subprocess.Popen([sys.executable, "-u", "-c", code], stdout=file))
                wait_until(partial(says, output, gets), f"a copy says {gets}", WITHIN_S)
            assert copies[0].wait(WITHIN_S) == 0
            assert "fenced" in outputs[0].read_text()
            assert copies[1].poll() is None
        finally:
            for copy in copies:
                copy.kill()
                copy.wait()


@pytest.mark.parametrize(
    ("topic", "gets"), [pytest.param("leader", "I lead", marks=pytest.mark.long), ("orders", "mine: [0, 1,")]
)
def test_an_example_ends_by_ctrl_c(tmp_path: Path, topic: str, gets: str) -> None:
    """It ends with exit code 0 and prints no trace."""
    output = tmp_path / "output"
    with Tenure(SETTINGS) as tenure, output.open("w") as file:
        process = subprocess.Popen([sys.executable, "-u", "-c", example(topic, tenure)], stdout=file, stderr=file)
        try:
            wait_until(partial(says, output, gets), f"it says {gets}", WITHIN_S)
            process.send_signal(signal.SIGINT)
            assert process.wait(WITHIN_S) == 0
            assert not says(output, "Traceback")
        finally:
            process.kill()
            process.wait()
