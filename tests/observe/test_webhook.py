"""Posts to a real HTTP server: what they have, and what happens if the receiver fails. Pauses are short here."""

from __future__ import annotations

import hmac
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from coordinator.observe import webhook as module
from coordinator.observe.counts import post_family
from coordinator.observe.webhook import SIGNATURE, Webhook
from coordinator.story.events import event_json
from tests.observe.conftest import Written
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until
from tests.support.told import cause, told

BEGAN = told("finding_began", kind="partition_stuck", severity="notice", found="<!channel> & t-0", advice="look")
ENDED = told("finding_ended", kind="partition_stuck", at_ms=9_000, began_ms=2_000)
REBALANCED = told("rebalance_ended", causes=[cause("member_left", "m-1")], outcome="completed", generation_before=2)


class Receiver(ThreadingHTTPServer):
    """Takes posts. answers: the status of each post; the last one stays. 0: it doesn't answer until the end."""

    daemon_threads = True

    def __init__(self, *answers: int, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.answers = list(answers)
        self.taken: list[tuple[dict[str, str], bytes]] = []
        self.over = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}/secret/path"

    @property
    def types(self) -> list[str]:
        """The types of the events that came."""
        return [json.loads(body)["type"] for _, body in self.taken]


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.taken.append((dict(self.headers.items()), body))
        answers = self.server.answers
        status = answers.pop(0) if len(answers) > 1 else answers[0]
        if status:
            self.send_response(status)
            self.send_header("location", "/elsewhere")
            self.end_headers()
        else:
            self.server.over.wait()

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def receiving(*answers: int, port: int = 0) -> Iterator[Receiver]:
    """A receiver, until the block ends."""
    with Receiver(*answers, port=port) as receiver:
        thread = threading.Thread(target=receiver.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield receiver
        finally:
            receiver.over.set()
            receiver.shutdown()
            thread.join()


@pytest.fixture
def posting(written: Written, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Webhook]]:
    """Make webhooks that try again at once."""
    monkeypatch.setattr(module, "PAUSES_S", (0.0, 0.01))
    made: list[Webhook] = []

    def make(url: str, **more: Any) -> Webhook:
        made.append(Webhook(url, written.lines, **more))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.stop(WITHIN_S)


def until(webhook: Webhook, outcome: str, count: int) -> None:
    """Wait until so many posts had this outcome."""
    wait_until(lambda: webhook.counted[outcome] == count, f"{count} {outcome}", WITHIN_S)


def test_a_post_is_an_event_with_a_signature(posting: Callable[..., Webhook], written: Written) -> None:
    """Findings and ends of rebalances, in order, and nothing else; the signature is that of the body."""
    with receiving(204) as receiver:
        webhook = posting(receiver.url, secret=b"key")
        webhook.put([told("group_loaded"), BEGAN, REBALANCED, ENDED])
        until(webhook, "posted", 3)
        assert receiver.types == ["finding_began", "rebalance_ended", "finding_ended"]
        headers, body = receiver.taken[0]
        assert body == event_json(BEGAN)
        assert headers["Content-Type"] == "application/json"
        assert headers[SIGNATURE] == f"sha256={hmac.digest(b'key', body, 'sha256').hex()}"
    assert written.events == []
    assert [(each.labels["outcome"], each.value) for each in post_family(webhook.counted).samples] == [
        ("dropped", 0),
        ("posted", 3),
        ("refused", 0),
    ]


def test_slack_gets_words_that_mention_nobody(posting: Callable[..., Webhook]) -> None:
    """The text of a finding with its advice, its end with how long it lasted, and a rebalance as the page has it."""
    with receiving(200) as receiver:
        webhook = posting(receiver.url, form="slack")
        webhook.put([BEGAN, ENDED, REBALANCED])
        until(webhook, "posted", 3)
        began, ended, rebalance = [json.loads(body)["text"] for _, body in receiver.taken]
        assert SIGNATURE not in receiver.taken[0][0]
    assert began == "g: notice: &lt;!channel&gt; &amp; t-0\nlook"
    assert ended == "g: partition_stuck is over after 7.0 s"
    assert rebalance.startswith("g: rebalance, generation 2 -&gt; 3: member m-1")


def test_a_receiver_that_fails_gets_the_same_post_again(posting: Callable[..., Webhook], written: Written) -> None:
    """However it fails; lines say it once, and that it works again, without the path, which may be a secret."""
    with receiving(500, 429, 503, 200) as receiver:
        webhook = posting(receiver.url)
        webhook.put([BEGAN, ENDED])
        until(webhook, "posted", 2)
        assert receiver.types == [*["finding_began"] * 4, "finding_ended"]
    assert written.events == ["webhook_failed", "webhook_works"]
    assert "secret" not in json.dumps(written.all)


def test_a_receiver_that_is_away_or_hangs(
    posting: Callable[..., Webhook], written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its post comes when it is back; a receiver that takes a connection and says nothing is one that failed."""
    monkeypatch.setattr(module, "POST_S", 0.2)
    with receiving(200) as first:
        port = first.server_port
    webhook = posting(first.url)
    webhook.put([BEGAN])
    wait_until(lambda: "webhook_failed" in written.events, "a line", WITHIN_S)
    with receiving(0, 200, port=port) as receiver:
        until(webhook, "posted", 1)
        assert receiver.types == ["finding_began", "finding_began"]
    assert written.events == ["webhook_failed", "webhook_works"]


@pytest.mark.parametrize("status", [400, 404, 302])
def test_a_post_that_is_refused_does_not_come_again(
    posting: Callable[..., Webhook], written: Written, status: int
) -> None:
    """The next one comes; a redirection is no answer."""
    with receiving(status, 200) as receiver:
        webhook = posting(receiver.url)
        webhook.put([BEGAN, ENDED])
        until(webhook, "posted", 1)
        assert receiver.types == ["finding_began", "finding_ended"]
    assert webhook.counted["refused"] == 1
    assert written.events == ["webhook_refused", "webhook_works"]


def test_the_oldest_posts_go_if_too_many_wait(
    posting: Callable[..., Webhook], written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line says so once, and the metric counts them."""
    monkeypatch.setattr(module, "QUEUED_MAX", 2)
    with receiving(0) as receiver:
        webhook = posting(receiver.url)
        webhook.put([BEGAN])
        wait_until(lambda: receiver.taken, "the first post", WITHIN_S)
        webhook.put([ENDED, REBALANCED, ENDED])
        assert webhook.counted["dropped"] == 2
        receiver.answers = [200]
        receiver.over.set()
        until(webhook, "posted", 2)
        assert receiver.types[-2:] == ["rebalance_ended", "finding_ended"]
    assert written.events.count("webhook_dropped") == 1


def test_a_stop_waits_for_no_receiver(posting: Callable[..., Webhook]) -> None:
    """Posts that a receiver doesn't take are lost when the observer ends."""
    with receiving(503) as receiver:
        webhook = posting(receiver.url)
        webhook.put([BEGAN])
        wait_until(lambda: receiver.taken, "the first post", WITHIN_S)
        webhook.stop(WITHIN_S)
        assert not webhook.thread.is_alive()
