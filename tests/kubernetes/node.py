"""A stand-in for a node and its kubelet: pods get this node, and their programs run as processes of the test.

    with Node(plane.api, start) as node:        # start(pod) -> the process of a pod, or None

To a controller it looks like a kubelet. It starts a process that ended by itself again, in the same pod. A pod that is
being deleted gets SIGTERM. When its process has ended, the status says that its containers ended, and only then the pod
goes, as since Kubernetes 1.27. It repeats what the API server doesn't answer. A node that is lost does nothing.

House rule: its threads have ended when it is closed. One that still reads over TLS while the interpreter ends can crash
it, for OpenSSL's memory is freed then.
"""

from __future__ import annotations

import http.client
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Protocol

from tests.kubernetes.control_plane import Api, ApiError, Object, Watch
from tests.support.started import Started

RETRY_S = 0.1
NAME = "node-0"
ADDRESS = "127.0.0.1"


class Process(Protocol):
    """The process of a pod."""

    @property
    def running(self) -> bool:
        """Whether it lives."""

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal."""

    def join(self) -> int:
        """Wait for its end."""


class Gone(Exception):
    """The pod is gone."""


class Node(Started):
    """See the module.

    processes: by the uid of the pod. ended: when the process of a deleted pod had ended, by the pod's name. is_lost:
    the node is cut off; its processes run on.
    """

    def __init__(self, api: Api, start: Callable[[Object], Process | None]) -> None:
        self._api = api
        self._start = start
        self.processes: dict[str, Process | None] = {}
        self.ended: dict[str, float] = {}
        self.is_lost = False
        self._closed = threading.Event()
        self._watch: Watch | None = None
        self._thread = threading.Thread(target=self._follow, name="node")
        self._lives: dict[str, tuple[threading.Thread, SimpleQueue[Object | None]]] = {}
        """By the uid of a pod: the thread that cares for it, and its states; None when it is gone."""
        self._restarts: Counter[str] = Counter()

    def start(self) -> None:
        """Be ready for pods."""
        meta = {"name": NAME, "labels": {"kubernetes.io/hostname": NAME}}
        with suppress(ApiError):  # it is there already
            self._api.post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": meta})
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": _now(), "lastTransitionTime": _now()}
        room = {"cpu": "64", "memory": "256Gi", "pods": "1000"}
        status = {"capacity": room, "allocatable": room, "conditions": [ready]}
        self._api.patch(f"/api/v1/nodes/{NAME}/status", {"status": status})
        self._thread.start()

    def rest(self) -> None:
        """From here on, end at once what starts for a pod."""
        self._closed.set()
        if self._watch is not None:
            self._watch.end()

    def close(self) -> None:
        """Wait for its threads, which wait for the processes of its pods."""
        self.rest()
        if self._thread.ident is not None:
            self._thread.join()
        for thread, _ in self._lives.values():
            thread.join()

    def _follow(self) -> None:
        while not self._closed.wait(RETRY_S):
            self._watch = self._api.watch("/api/v1/pods")
            with suppress(OSError, http.client.HTTPException, ApiError, ValueError):  # the API server restarts
                for kind, pod in self._watch:
                    if self._closed.is_set():
                        return
                    if not self.is_lost:
                        self._take(pod["metadata"]["uid"], None if kind == "DELETED" else pod)

    def _take(self, uid: str, pod: Object | None) -> None:
        """Hand the state of a pod to its thread."""
        if pod is not None and uid not in self._lives:
            states: SimpleQueue[Object | None] = SimpleQueue()
            self._lives[uid] = threading.Thread(target=self._live, args=(uid, states)), states
            self._lives[uid][0].start()
        if uid in self._lives:
            self._lives[uid][1].put(pod)

    def _live(self, uid: str, states: SimpleQueue[Object | None]) -> None:
        """Care for a pod until it is gone. The process of one that was forced out runs on."""
        pod: Object | None = None
        with suppress(Gone):
            while not self._closed.is_set():
                with suppress(Empty):
                    if (pod := states.get(timeout=RETRY_S)) is None:
                        break
                if pod is not None and not self.is_lost:
                    self._step(uid, pod)
        if (process := self.processes.get(uid)) is not None:
            self._closed.wait()
            process.join()

    def _step(self, uid: str, pod: Object) -> None:
        """Do what a pod needs next. Raises Gone."""
        process = self.processes.get(uid)
        if pod["metadata"].get("deletionTimestamp"):
            if pod["spec"].get("nodeName"):
                self._end(pod, process)
            raise Gone
        if not pod["spec"].get("nodeName"):
            self._bind(pod)
        elif uid not in self.processes and pod["status"]["phase"] == "Pending":
            self._run(pod)
        elif process is not None and not process.running:
            process.join()
            self._restarts[uid] += 1
            self._start_process(pod)
            running = {"running": {"startedAt": _now()}}
            self._set_status(pod, {"containerStatuses": _containers(pod, running, self._restarts[uid])})

    def _start_process(self, pod: Object) -> None:
        self.processes[pod["metadata"]["uid"]] = process = self._start(pod)
        if process is not None and self._closed.is_set():
            process.send_signal(signal.SIGKILL)

    def _patiently(self, call: Callable[[], Object]) -> None:
        """Repeat a call until the API server does it, or until the node is closed. Raises Gone."""
        while not self._closed.is_set():
            try:
                call()
            except (OSError, http.client.HTTPException):
                pass
            except ApiError as error:
                if error.is_gone:
                    raise Gone from None
            else:
                return
            self._closed.wait(RETRY_S)

    def _bind(self, pod: Object) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        target = {"kind": "Node", "name": NAME}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "uid": uid}, "target": target}
        with suppress(OSError, http.client.HTTPException, ApiError):  # the next step does it again, or sees it done
            self._api.post(f"{_path(pod)}/binding", body)

    def _run(self, pod: Object) -> None:
        self._start_process(pod)
        kinds = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        status = {
            "phase": "Running",
            "podIP": ADDRESS,
            "podIPs": [{"ip": ADDRESS}],
            "hostIP": ADDRESS,
            "startTime": _now(),
            "conditions": [{"type": kind, "status": "True", "lastTransitionTime": _now()} for kind in kinds],
            "containerStatuses": _containers(pod, {"running": {"startedAt": _now()}}),
        }
        self._set_status(pod, status)

    def _end(self, pod: Object, process: Process | None) -> None:
        if process is not None:
            if process.running:
                process.send_signal(signal.SIGTERM)
            process.join()
        self.ended[pod["metadata"]["name"]] = time.monotonic()
        ended = {"terminated": {"exitCode": 0, "startedAt": _now(), "finishedAt": _now(), "reason": "Completed"}}
        self._set_status(pod, {"phase": "Succeeded", "containerStatuses": _containers(pod, ended)})
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        self._patiently(lambda: self._api.delete(_path(pod), **options))

    def _set_status(self, pod: Object, status: Object) -> None:
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        self._patiently(lambda: self._api.patch(f"{_path(pod)}/status", body))


def _path(pod: Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _containers(pod: Object, state: Object, restarts: int = 0) -> list[Object]:
    common = {"ready": "running" in state, "started": "running" in state, "restartCount": restarts, "imageID": ""}
    return [
        {"name": each["name"], "image": each["image"], "containerID": "test://1", "state": state, **common}
        for each in pod["spec"]["containers"]
    ]


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
