"""A control over sockets, in this process: the server and the web server are those of `tenure serve --control`."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from starlette.middleware import Middleware

from coordinator.config import load
from coordinator.loop.clock import SystemClock
from coordinator.loop.lines import Lines
from coordinator.loop.pace import Pace
from coordinator.server.wire.listener import bind
from coordinator.site.access import RefusedTokens, TokenCheck
from coordinator.site.guard import Guard
from coordinator.site.web import Web
from coordinator.testing.http.routes import NoBrowsers, routes
from coordinator.testing.http.serving import tenure_of
from coordinator.testing.loop_thread import LoopThread
from coordinator.testing.tenure import Tenure
from tests.server.harness import ManualClock
from tests.support.patience import WITHIN_S

Answer = tuple[int, Any]


class Control:
    """A control. tenure: its server. log: the lines of its web server."""

    def __init__(self, port: int, tenure: Tenure, log: StringIO) -> None:
        self.port = port
        self.tenure = tenure
        self.log = log

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Return status and body, JSON or text. body: JSON, or the bytes themselves."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WITHIN_S)
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, content, {name.replace("_", "-"): text for name, text in headers.items()})
            answer = connection.getresponse()
            text = answer.read().decode()
            is_json = answer.headers.get_content_type() == "application/json"
            return answer.status, json.loads(text) if is_json else text
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """Return the body of an answer with status 200."""
        return self._ok(self.ask("GET", path))

    def post(self, path: str, /, **fields: Any) -> Any:
        """Return the body of an answer with status 200."""
        return self._ok(self.ask("POST", path, fields))

    def refused(self, path: str, /, **fields: Any) -> tuple[int, str]:
        """Return status and error of a refused POST."""
        status, body = self.ask("POST", path, fields)
        assert list(body) == ["error"]
        return status, body["error"]

    @staticmethod
    def _ok(answer: Answer) -> Any:
        status, body = answer
        assert status == 200, body
        return body


@contextmanager
def controlling(*settings: str, token: str = "") -> Iterator[Control]:
    """Run a server with its control."""
    sets = ["listeners=PLAINTEXT://127.0.0.1:0", "tenure.control=127.0.0.1:0", "tenure.topics=t:6", *settings]
    config = load(sets=sets)[0]
    log = StringIO()
    with ExitStack() as stack:
        tenure = tenure_of(config)
        stack.callback(tenure.stop)
        tenure.start()
        thread = LoopThread("control")
        stack.callback(thread.end)
        listening = bind(config.control[0])
        stack.callback(listening.close)
        lines = Lines(log, "text", 1, SystemClock())
        refused = RefusedTokens("control", ManualClock(), lines)
        checks = [
            Middleware(TokenCheck, token=token, setting="tenure.control.token", refused=refused),
            Middleware(NoBrowsers),
        ]
        web = Web(Guard(ManualClock(), lines, 100, 60_000, Pace(ManualClock(), lambda _: None)), (), lines, checks)
        thread.run(web.start(listening, routes(tenure)))
        stack.callback(lambda: thread.run(web.stop()))
        yield Control(listening.getsockname()[1], tenure, log)


@pytest.fixture
def control() -> Iterator[Control]:
    """Yield a control whose server is in memory."""
    with controlling() as made:
        yield made


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[Control]:
    """Yield a control whose server has a folder."""
    with controlling(f"log.dirs={tmp_path / 'data'}") as made:
        yield made


@pytest.fixture
def several() -> Iterator[Control]:
    """Yield a control of three nodes."""
    with controlling("tenure.control.nodes=3") as made:
        yield made


Fill = Callable[..., int]


@pytest.fixture
def fill(control: Control) -> Fill:
    """Return a function that fills the group "workers" and waits for it; the number of the crew."""

    def filled(count: int = 3, **options: Any) -> int:
        crew = control.post("/v1/groups/workers/fill", count=count, topics=["t"], **options)
        control.post("/v1/groups/workers/wait", state="Stable", members=count)
        control.post(f"/v1/crews/{crew['id']}/wait-until-seated")
        number: int = crew["id"]
        return number

    return filled
