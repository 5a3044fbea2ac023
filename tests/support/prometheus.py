"""A real Prometheus for tests: its programs, and a process that scrapes one server each second.

House rule: all is in a folder of the test; nothing is installed, and nothing listens but on 127.0.0.1.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.support.patience import WITHIN_S
from tests.support.started import Started
from tests.support.tenure import wait_until

ROOT = Path(__file__).resolve().parents[2]
UNPACKED = ROOT / "build" / "prometheus" / "usr" / "bin"
"""Where `make prometheus` puts Debian's programs."""
MISSING = "no Prometheus is here (run `make prometheus`, or install it; Debian: apt-get install prometheus)"


def program(name: str = "prometheus") -> str | None:
    """The path of `prometheus` or `promtool`; None if it isn't here."""
    unpacked = UNPACKED / name
    return shutil.which(name) or (str(unpacked) if unpacked.exists() else None)


class Prometheus(Started):
    """Scrapes `target` (HOST:PORT) each second as the job tenure, and evaluates the rules of a file as often."""

    def __init__(self, folder: Path, target: str, rules: Path) -> None:
        command = program()
        assert command is not None, MISSING
        config = folder / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            f"rule_files: [{json.dumps(str(rules))}]\n"
            f"scrape_configs: [{{job_name: tenure, static_configs: [{{targets: [{json.dumps(target)}]}}]}}]\n"
        )
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._address = f"127.0.0.1:{free.getsockname()[1]}"
        self._log = folder / "prometheus.log"
        self._command = [
            command,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self._address}",
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, path: str, **query: str) -> Any:
        """The `data` of an answer of its HTTP API; None while it doesn't answer."""
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=WITHIN_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.SERVICE_UNAVAILABLE:  # it starts
                return None
            raise AssertionError(f"{query}: {error.read().decode()}") from error
        except OSError:
            return None

    def value(self, query: str) -> float | None:
        """The value of a query with one result; None if it has none."""
        data = self.ask("query", query=query)
        return float(data["result"][0]["value"][1]) if data and data["result"] else None

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        data = self.ask("alerts") or {"alerts": []}
        return {each["labels"]["alertname"] for each in data["alerts"] if each["state"] == "firing"}

    def start(self) -> None:
        """Start it, and wait for the first scrape."""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        wait_until(lambda: self.value("up"), "a first scrape", WITHIN_S)

    def close(self) -> None:
        """End it."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(WITHIN_S)
