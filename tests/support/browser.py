"""A headless Chromium, controlled by its DevTools protocol over a pipe: JSON messages, each ended by a zero byte.

The browser reaches no host but 127.0.0.1. `requests` has every address that a page asks for.

House rule: tests act and look like a person. They press keys and make no events, and take names from the accessibility
tree, which a screen reader reads.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
from base64 import b64decode
from pathlib import Path
from typing import Any

from tests.support.patience import WITHIN_S
from tests.support.started import Closes

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "chromium-headless-shell")
UNPACKED = Path(__file__).resolve().parents[2] / "build" / "chromium"
"""Where `make chromium` puts Debian's program, and the libraries that the machine lacks."""
MISSING = "no Chromium is here (run `make chromium`, or install it; Debian: apt-get install chromium)"
_ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--force-color-profile=srgb", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--remote-debugging-pipe",
)  # fmt: skip
_KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39}
_SIGNS = {"/": 191, "-": 189, "+": 187}


def find_browser() -> str | None:
    """Return the path of a Chromium; None if none is here."""
    unpacked = shutil.which(UNPACKED / "usr" / "lib" / "chromium" / "chromium-headless-shell")
    return next((path for name in NAMES if (path := shutil.which(name))), unpacked)


def _libraries() -> str:
    """The unpacked folders with libraries; PulseAudio has a further one, in which only an installed one looks."""
    return os.pathsep.join(str(each) for form in ("", "/*/") for each in UNPACKED.glob(f"**/lib/*-linux-gnu{form}"))


class Browser(Closes):
    """One browser window. Raises FileNotFoundError if no browser is here.

    requests: addresses that pages asked for. errors: lines on the console, and loads that a policy refused.
    """

    def __init__(self) -> None:
        program = find_browser()
        if program is None:
            raise FileNotFoundError(MISSING)
        self.requests: list[str] = []
        self.errors: list[str] = []
        self._numbers = itertools.count(1)
        self._loaded = False
        self._folder = tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True)
        # Chromium reads at descriptor 3 and writes at 4; a shell moves its own there.
        self._process = subprocess.Popen(
            ["sh", "-c", 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null', "sh", program, *_ARGUMENTS,
             f"--user-data-dir={self._folder.name}", "about:blank"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
            env=os.environ | {"LD_LIBRARY_PATH": _libraries()},
        )  # fmt: skip
        self._session: str | None = None
        self._rest = b""
        self._login: tuple[str, str] | None = None
        self._asked: set[str] = set()
        try:
            self._attach()
        except BaseException:
            self.close()
            raise

    def _attach(self) -> None:
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log", "Accessibility"):
            self._call(f"{domain}.enable")

    def close(self) -> None:
        """End the browser."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()  # the browser ends when its input is closed
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._folder.cleanup()

    def log_in_as(self, login: tuple[str, str] | None) -> None:
        """Set the name and password that the person types when a server asks; None: the person cancels.

        If the server asks for the same request again, the person cancels.
        """
        self._login = login
        self._call("Fetch.enable", handleAuthRequests=True)

    def open(self, path: Path | str) -> None:
        """Open a file, or an address, and wait until it is loaded."""
        self._loaded = False
        self._call("Page.navigate", url=path if isinstance(path, str) else path.absolute().as_uri())
        while not self._loaded:
            self._take()

    def open_anew(self, address: str) -> None:
        """Open an address as a new page: one that differs behind the # alone would be the same page."""
        self.open("about:blank")
        self.open(address)

    def resize(self, width: int, height: int, *, mobile: bool = False) -> None:
        """Give the window another size, or make it a telephone's."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def prefer(self, scheme: str) -> None:
        """Set the color scheme that the person prefers: dark or light."""
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def show_on(self, medium: str) -> None:
        """Show the page as on a screen, or as a printer prints it: screen or print."""
        self._call("Emulation.setEmulatedMedia", media=medium)

    def live_in(self, zone: str) -> None:
        """Set the person's time zone, such as Asia/Kolkata."""
        self._call("Emulation.setTimezoneOverride", timezoneId=zone)

    def screenshot(self, form: str = "png") -> bytes:
        """Return a picture of the window, as png or webp."""
        return b64decode(self._call("Page.captureScreenshot", format=form)["data"])

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def text(self, selector: str) -> str:
        """Return the text of the first such element."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    def texts(self, selector: str) -> list[str]:
        """Return the texts of all such elements."""
        return list(self.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.innerText)"))

    def press(self, key: str) -> None:
        """Press and release a key."""
        common = {"key": key, "code": key, "windowsVirtualKeyCode": (_KEYS | _SIGNS)[key]}
        text = {"text": "\r"} if key == "Enter" else {"text": key} if key in _SIGNS else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        self._call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        """Type a text."""
        self._call("Input.insertText", text=text)

    def names(self, role: str) -> list[str]:
        """Return the names of all elements with that role, as a screen reader says them."""
        nodes = self._call("Accessibility.getFullAXTree")["nodes"]
        return [
            node.get("name", {}).get("value", "")
            for node in nodes
            if not node["ignored"] and node.get("role", {}).get("value") == role
        ]

    def _answer_login(self, request: str) -> None:
        """Type name and password, or cancel."""
        answer = {"response": "CancelAuth"}
        if self._login is not None and request not in self._asked:
            self._asked.add(request)
            name, password = self._login
            answer = {"response": "ProvideCredentials", "username": name, "password": password}
        self._say("Fetch.continueWithAuth", requestId=request, authChallengeResponse=answer)

    def _say(self, method: str, **parameters: Any) -> int:
        """Send a command; returns its number, which the answer has."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\0")
        return number

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = self._say(method, **parameters)
        while True:
            answer = self._take()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result

    def _take(self) -> dict[str, Any]:
        """Return the next message, and add its requests and errors to the lists."""
        assert self._process.stdout is not None
        while b"\0" not in self._rest:
            poll = select.poll()
            poll.register(self._process.stdout, select.POLLIN)
            if not poll.poll(WITHIN_S * 1000):
                raise TimeoutError(f"the browser says nothing for {WITHIN_S} s")
            more = os.read(self._process.stdout.fileno(), 1 << 20)
            if not more:
                raise ConnectionError(f"the browser ended with exit code {self._process.wait(10)}")
            self._rest += more
        data, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(data)
        parameters = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Fetch.requestPaused":
                self._say("Fetch.continueRequest", requestId=parameters["requestId"])
            case "Fetch.authRequired":
                self._answer_login(parameters["requestId"])
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Log.entryAdded":
                self.errors.append(parameters["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.errors.append(str(parameters["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.errors.append(str(parameters["args"]))
            case _:
                pass
        return message
