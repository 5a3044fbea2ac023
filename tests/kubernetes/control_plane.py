"""A real control plane of Kubernetes on loopback: etcd, the API server and the controller manager.

    with ControlPlane(certificates) as plane:
        plane.kubeconfig                    # of an admin
        plane.api.post("/api/v1/namespaces", {...})

All are one program, which `make kubernetes` builds from Go modules (box/) once, in 15 minutes. It is kept in the user's
cache folder, or in $KUBEBOX_CACHE, so that each clone of a machine finds it. Without it the tests are left out, with a
line.

There is no kubelet: node.py stands for it. House rule: only processes that this module started get signals, by pid.
"""

from __future__ import annotations

import atexit
import base64
import hashlib
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.patience import WITHIN_S
from tests.support.ports import reserved_port
from tests.support.started import Started
from tests.support.tenure import wait_until

if TYPE_CHECKING:
    from tests.support.certificates import Certificates

RELEASE = "1.36.3"
BOX = Path(__file__).with_name("box")
MISSING = "no control plane of Kubernetes is here (`make kubernetes` builds one with Go, in 15 minutes)"
TOKEN, MANAGER_TOKEN = "admin-token", "manager-token"
USERS = f'{TOKEN},admin,admin,"system:masters"\n{MANAGER_TOKEN},system:kube-controller-manager,manager\n'

Object = dict[str, Any]


class ApiError(Exception):
    """The API server refused. status: of HTTP."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status
        self.is_gone = status == 404 or (status in {409, 422} and "uid" in text.lower())
        """Whether the object isn't there, or another one has its name."""


class Api:
    """The API server, for tests and for the stand-in for a kubelet. Each call has a connection of its own."""

    def __init__(self, port: int, ca: Path) -> None:
        self.port = port
        self._context = ssl.create_default_context(cafile=str(ca))

    def get(self, path: str) -> Object:
        """Read an object or a list."""
        return self._call("GET", path)

    def post(self, path: str, body: Object) -> Object:
        """Create an object."""
        return self._call("POST", path, body)

    def patch(self, path: str, body: Object) -> Object:
        """Change some fields of an object."""
        return self._call("PATCH", path, body, "application/merge-patch+json")

    def delete(self, path: str, **options: Any) -> Object:
        """Delete an object."""
        return self._call("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **options})

    def watch(self, path: str) -> Watch:
        """Watch a collection."""
        return Watch(self, path)

    def connection(self) -> http.client.HTTPSConnection:
        """A connection for requests of a caller's own."""
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=self._context, timeout=400)

    def _call(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Object:
        connection = self.connection()
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers(kind))
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        if response.status >= 400:
            raise ApiError(response.status, text)
        answer: Object = json.loads(text) if text.startswith("{") else {"text": text}
        return answer


class Watch:
    """All objects of a collection as ADDED, then what happens to them, until the server ends the answer, or `end`."""

    def __init__(self, api: Api, path: str) -> None:
        self._api = api
        self._path = path
        self._connection = api.connection()
        self._is_over = False

    def __iter__(self) -> Iterator[tuple[str, Object]]:
        found = self._api.get(self._path)
        yield from (("ADDED", each) for each in found["items"])
        version = found["metadata"]["resourceVersion"]
        try:
            self._connection.connect()
            if self._is_over:
                return
            path = f"{self._path}?watch=1&timeoutSeconds=300&resourceVersion={version}"
            self._connection.request("GET", path, headers=headers())
            response = self._connection.getresponse()
            if response.status >= 400:
                raise ApiError(response.status, response.read().decode())
            for line in response:
                event = json.loads(line)
                yield event["type"], event["object"]
        finally:
            self._connection.close()

    def end(self) -> None:
        """End it, from another thread: its read raises OSError or returns nothing."""
        self._is_over = True
        if (own := self._connection.sock) is not None:
            with suppress(OSError):  # it has ended already
                socket.socket.shutdown(own, socket.SHUT_RDWR)


def headers(kind: str = "application/json") -> dict[str, str]:
    """The headers of an admin's request."""
    return {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}


class ControlPlane(Started):
    """See the module. folder: keys, data and logs, removed at the end. is_managed: whether the controllers run."""

    def __init__(self, certificates: Certificates, *, is_managed: bool = True) -> None:
        found = program()
        assert found is not None, MISSING
        self._program = found
        self._is_managed = is_managed
        self._pem, self._ca = certificates.server, certificates.ca
        self.folder = Path(tempfile.mkdtemp(prefix="kubernetes-"))
        self._held = [reserved_port() for _ in range(4)]
        self.port, self._etcd, self._peer, self._manager = (held.getsockname()[1] for held in self._held)
        self.api = Api(self.port, self._ca)
        self.kubeconfig = self.kubeconfig_of("admin", TOKEN)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start etcd, the API server and, if it is managed, the controller manager."""
        self._start_etcd()
        self.start_api_server()
        if self._is_managed:
            self._start_manager()

    def start_api_server(self) -> None:
        """Start the API server, and wait until it is ready."""
        (self.folder / "users.csv").write_text(USERS)
        self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--tls-cert-file={self._pem}",
            f"--tls-private-key-file={self._pem}",
            f"--client-ca-file={self._ca}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._pem}",
            f"--service-account-signing-key-file={self._pem}",
            f"--token-auth-file={self.folder / 'users.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none",
            f"--cert-dir={self.folder}",
        )
        wait_until(self._is_ready, "the API server is ready", WITHIN_S)

    def kill_api_server(self) -> None:
        """SIGKILL, and wait for the end of the process."""
        self._end("kube-apiserver", signal.SIGKILL)

    def pause(self, seconds: float) -> None:
        """Let time pass while it is away."""
        threading.Event().wait(seconds)

    def compact(self) -> None:
        """Let etcd forget all versions but the newest, as the API server does every five minutes."""
        connection = http.client.HTTPConnection("127.0.0.1", self._etcd, timeout=WITHIN_S)

        def call(path: str, body: Object) -> Object:
            connection.request("POST", f"/v3/kv/{path}", json.dumps(body), {"Content-Type": "application/json"})
            answer: Object = json.loads(connection.getresponse().read())
            return answer

        newest = call("range", {"key": base64.b64encode(b"/").decode()})["header"]["revision"]
        assert "header" in call("compaction", {"revision": newest, "physical": True})
        connection.close()

    def close(self) -> None:
        """End all processes, and remove the folder."""
        for name in reversed(self._processes.copy()):
            self._end(name, signal.SIGKILL)
        for held in self._held:
            held.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def tail(self, name: str) -> str:
        """The end of a program's output."""
        return "\n".join((self.folder / f"{name}.log").read_text(errors="replace").splitlines()[-15:])

    def _start_etcd(self) -> None:
        client, peer = f"http://127.0.0.1:{self._etcd}", f"http://127.0.0.1:{self._peer}"
        self._run(
            "etcd",
            "--name=one",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=one={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )

    def _start_manager(self) -> None:
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig_of('manager', MANAGER_TOKEN)}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._manager}",
            f"--cert-dir={self.folder}",
            f"--service-account-private-key-file={self._pem}",
            f"--root-ca-file={self._ca}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        )

    def _run(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [str(self._program), name, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        atexit.register(self._end, name, signal.SIGKILL)

    def _end(self, name: str, number: signal.Signals) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            process.send_signal(number)
            process.wait(WITHIN_S)

    def _is_ready(self) -> bool:
        assert self._processes["kube-apiserver"].poll() is None, self.tail("kube-apiserver")
        with suppress(OSError, ApiError):
            return bool(self.api.get("/readyz")["text"] == "ok")
        return False

    def kubeconfig_of(self, name: str, token: str) -> Path:
        """The kubeconfig of a user with this token."""
        cluster = {"server": f"https://127.0.0.1:{self.port}", "certificate-authority": str(self._ca)}
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "test", "cluster": cluster}],
                    "users": [{"name": name, "user": {"token": token}}],
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
                    "current-context": "test",
                }
            )
        )
        return path


def cache() -> Path:
    """The folder of the programs that are built once for all clones of a machine."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kubebox"
    return Path(os.environ.get("KUBEBOX_CACHE") or default)


def place() -> Path:
    """The path of the program, whether it is built or not."""
    sources = (BOX / "go.sum").read_bytes() + (BOX / "main.go").read_bytes()
    return cache() / hashlib.sha256(sources).hexdigest()[:12] / "kubebox"


def program() -> Path | None:
    """The path of the program; None if it isn't built."""
    return place() if place().exists() else None


def build() -> None:
    """Build the program, unless it is there."""
    major, minor, _ = RELEASE.split(".")
    version = {"gitVersion": f"v{RELEASE}", "gitMajor": major, "gitMinor": minor}
    flags = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in version.items())
    if program() is None:
        command = ["go", "build", "-trimpath", "-ldflags", f"-s -w {flags}", "-o", str(place()), "."]
        environment = {**os.environ, "GOFLAGS": "-buildvcs=false -mod=readonly"}
        subprocess.run(command, cwd=BOX, env=environment, check=True)
    print(place())
