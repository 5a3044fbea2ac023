"""The Docker engine for the chaos services: it ends, freezes and cuts off containers of its own compose project.

House rule: it touches no container of another project.
"""

from __future__ import annotations

import json
import socket
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

DOCKER_SOCKET = "/var/run/docker.sock"
ENGINE_TIMEOUT_S = 60.0


def say(did: str, **fields: Any) -> None:
    """Print one line."""
    print(json.dumps({"did": did, **fields}), flush=True)


class Engine:
    """The Docker engine, through its HTTP interface.

    services: the names of all services of this project that have a container.
    """

    def __init__(self) -> None:
        this = self._call("GET", f"/containers/{socket.gethostname()}/json")
        labels = [
            f"com.docker.compose.project={this['Config']['Labels']['com.docker.compose.project']}",
            "com.docker.compose.oneoff=False",
        ]
        found = self._call("GET", f"/containers/json?all=1&filters={quote(json.dumps({'label': labels}))}")
        self._containers = {each["Labels"]["com.docker.compose.service"]: each["Id"] for each in found}
        (self._network,) = this["NetworkSettings"]["Networks"]
        self.services = frozenset(self._containers)

    def end(self, service: str, by: str) -> None:
        """End a container by SIGTERM or SIGKILL; the engine doesn't start it again by itself."""
        if by == "SIGTERM":
            self._ask(service, "stop")
        else:
            self._ask(service, f"kill?signal={by}")

    def start(self, service: str) -> None:
        """Start a container."""
        self._ask(service, "start")

    def freeze(self, service: str) -> None:
        """Stop all processes of a container at once, as SIGSTOP does."""
        self._ask(service, "pause")

    def thaw(self, service: str) -> None:
        """Let them go on."""
        self._ask(service, "unpause")

    def cut(self, service: str) -> None:
        """Take a container's network away. Its processes go on, and nobody tells its peers."""
        self._call("POST", f"/networks/{self._network}/disconnect", {"Container": self._containers[service]})

    def join(self, service: str) -> None:
        """Give the network back, under the same name."""
        body = {"Container": self._containers[service], "EndpointConfig": {"Aliases": [service]}}
        self._call("POST", f"/networks/{self._network}/connect", body)

    def _ask(self, service: str, what: str) -> None:
        self._call("POST", f"/containers/{self._containers[service]}/{what}")

    def _call(self, method: str, path: str, body: object = None) -> Any:
        """Return the answer, decoded from JSON. Raises RuntimeError if the engine refuses."""
        connection = HTTPConnection("docker", timeout=ENGINE_TIMEOUT_S)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.sock.connect(DOCKER_SOCKET)
            if body is None:
                connection.request(method, path)
            else:
                connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            told = response.read()
        finally:
            connection.close()
        if response.status >= 400:
            raise RuntimeError(f"{method} {path}: {response.status} {told.decode(errors='replace').strip()}")
        return json.loads(told) if told else None
