"""Posts findings when they begin and end, and rebalances when they are over, to a URL.

A post has one event, as JSON of its class (coordinator.story.events) or as a message of Slack. With a secret it has the
header SIGNATURE: "sha256=" and the HMAC of the body in hexadecimal digits, as of GitHub's webhooks.

A thread posts the events one after the other. If a receiver is away, hangs, or answers 408, 429 or 5xx, the same post
comes again after a pause, so it may come twice. Any other answer than 2xx refuses it for good. If more than QUEUED_MAX
events wait, the oldest goes.

House rule: no line has the path of the URL, which may be a secret.
"""

from __future__ import annotations

import hmac
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

from msgspec.json import Encoder

from coordinator.loop.lines import Lines
from coordinator.story.entries import Timeline
from coordinator.story.events import FindingBegan, FindingEnded, RebalanceEnded, RebalanceEvent, event_json
from coordinator.story.words import entry_lines
from coordinator.text import duration_text

SIGNATURE = "X-Tenure-Signature"

POSTED = (FindingBegan, FindingEnded, RebalanceEnded)

QUEUED_MAX = 1_000

POST_S = 5.0
"""How long a receiver may be silent."""

PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""The pauses between tries of one post; the last one stays."""

AGAIN = frozenset({408, 429})
"""Answers below 500 after which another try may succeed."""

_JSON = Encoder()


def event_text(event: RebalanceEvent) -> str:
    """An event in words, for a person."""
    match event:
        case FindingBegan():
            return f"{event.group}: {event.severity}: {event.found}\n{event.advice}"
        case FindingEnded():
            return f"{event.group}: {event.kind} is over after {duration_text(event.at_ms - event.began_ms)}"
    lines = [line for entry in Timeline(event.group or "").add_all([event]).entries for line in entry_lines(entry)]
    return "\n".join([f"{event.group}: {lines[0]}", *lines[1:]])


def slack_json(event: RebalanceEvent) -> bytes:
    """An event as the body of Slack's incoming webhooks. Nobody can mention people or channels by a name of a group."""
    text = event_text(event).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _JSON.encode({"text": text})


FORMS: dict[str, Callable[[RebalanceEvent], bytes]] = {"json": event_json, "slack": slack_json}


def _opener() -> OpenerDirector:
    """Opens URLs of http and https, also by a proxy. It follows no redirection: that would make a GET of a post."""
    opener = OpenerDirector()
    for handler in (ProxyHandler, HTTPHandler, HTTPSHandler, HTTPDefaultErrorHandler, HTTPErrorProcessor):
        opener.add_handler(handler())
    return opener


class Webhook:
    """See the module. form: one of FORMS. secret: b"" for no signature.

    counted: posts by outcome: posted, refused, dropped. thread: the one that posts.
    """

    def __init__(self, url: str, lines: Lines, form: str = "json", secret: bytes = b"") -> None:
        self._url = url
        self._host = urlsplit(url).hostname
        self._lines = lines
        self._body = FORMS[form]
        self._secret = secret
        self._opener = _opener()
        self._waiting: deque[RebalanceEvent] = deque()
        self._changed = threading.Condition()
        self._is_stopping = False
        self._said: set[str] = set()
        self.counted = Counter(dict.fromkeys(("posted", "refused", "dropped"), 0))
        self.thread = threading.Thread(target=self._run, name="webhook", daemon=True)

    def start(self) -> None:
        """Start to post."""
        self.thread.start()

    def put(self, events: Iterable[RebalanceEvent]) -> None:
        """Have events posted. For any thread."""
        with self._changed:
            for event in events:
                if not isinstance(event, POSTED):
                    continue
                if len(self._waiting) >= QUEUED_MAX:
                    self._waiting.popleft()
                    self.counted["dropped"] += 1
                    self._say("webhook_dropped", f"More than {QUEUED_MAX} posts wait: the oldest ones go")
                self._waiting.append(event)
            self._changed.notify_all()

    def stop(self, within_s: float) -> None:
        """Post what waits, if that is possible in time, and stop."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        self.thread.join(within_s)

    def _run(self) -> None:
        failures = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_stopping)
                if not self._waiting:
                    return
                event = self._waiting[0]
            outcome, problem = self._post(event)
            with self._changed:
                if outcome:
                    failures = 0
                    self.counted[outcome] += 1
                    if self._waiting and self._waiting[0] is event:
                        self._waiting.popleft()
                if problem:
                    self._say(f"webhook_{outcome or 'failed'}", f"A post to {self._host} failed: {problem}")
                elif self._said:
                    self._said.clear()
                    self._lines.info("webhook_works", f"{self._host} takes posts again")
                if not outcome:
                    pause_s = PAUSES_S[min(failures, len(PAUSES_S) - 1)]
                    failures += 1
                    if self._is_stopping or self._changed.wait_for(lambda: self._is_stopping, pause_s):
                        return

    def _post(self, event: RebalanceEvent) -> tuple[str, str]:
        """Post an event; returns the outcome, "" if another try may succeed, and what went wrong."""
        body = self._body(event)
        headers = {"Content-Type": "application/json", "User-Agent": "tenure-observe"}
        if self._secret:
            headers[SIGNATURE] = f"sha256={hmac.digest(self._secret, body, 'sha256').hex()}"
        try:
            request = Request(self._url, body, headers)  # noqa: S310 - the opener knows no other schemes
            with self._opener.open(request, timeout=POST_S):
                return "posted", ""
        except HTTPError as error:
            error.close()
            is_final = error.code < 500 and error.code not in AGAIN
            return "refused" if is_final else "", f"it answers {error.code}"
        except OSError as error:
            return "", str(error.reason if isinstance(error, URLError) else error) or type(error).__name__
        except (HTTPException, ValueError) as error:  # its text may have the URL
            return "", type(error).__name__

    def _say(self, name: str, text: str) -> None:
        """Write a line, once until a post succeeds."""
        if name not in self._said:
            self._said.add(name)
            self._lines.warn(name, text)
