"""A stand-in for a node and its kubelet: pods get this node, and their programs run as processes of the test.

    with Node(plane.api, start) as node:        # start(pod) -> the process of a pod, or None

To a controller it looks like a kubelet. It starts a process that ended by itself again, in the same pod. A pod that is
being deleted gets SIGTERM. When its process has ended, the status says that its containers ended, and only then the pod
goes, as since Kubernetes 1.27. It repeats what the API server doesn't answer. A node that is lost does nothing.
"""

from __future__ import annotations

import http.client
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol, Self

from tests.kubernetes.control_plane import Api, ApiError, Object

RETRY_S = 0.1
IS_AWAY = (429, 500, 503)
"""The answers of an API server that starts."""
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


class Node:
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
        self._begun: set[tuple[str, str]] = set()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="node", daemon=True)

    def __enter__(self) -> Self:
        meta = {"name": NAME, "labels": {"kubernetes.io/hostname": NAME}}
        with suppress(ApiError):  # it is there already
            self._api.post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": meta})
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": _now(), "lastTransitionTime": _now()}
        room = {"cpu": "64", "memory": "256Gi", "pods": "1000"}
        status = {"capacity": room, "allocatable": room, "conditions": [ready]}
        self._api.patch(f"/api/v1/nodes/{NAME}/status", {"status": status})
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()

    def _follow(self) -> None:
        while not self._closed.wait(RETRY_S):
            with suppress(OSError, http.client.HTTPException, ApiError, ValueError):  # the API server restarts
                for kind, pod in self._api.watch("/api/v1/pods"):
                    if self._closed.is_set():
                        return
                    if kind in {"ADDED", "MODIFIED"} and not self.is_lost:
                        self._take(pod)

    def _take(self, pod: Object) -> None:
        """Begin what a pod needs next, each thing once."""
        metadata, spec = pod["metadata"], pod["spec"]
        if not spec.get("nodeName"):
            step = "" if metadata.get("deletionTimestamp") else "bind"
        elif metadata.get("deletionTimestamp"):
            step = "end"
        else:
            step = "run" if pod["status"]["phase"] == "Pending" else ""
        if step and (metadata["uid"], step) not in self._begun:
            self._begun.add((metadata["uid"], step))
            threading.Thread(target=self._carry_out, args=(step, pod), daemon=True).start()

    def _carry_out(self, step: str, pod: Object) -> None:
        with suppress(ApiError):  # it was deleted meanwhile
            {"bind": self._bind, "run": self._run, "end": self._end}[step](pod)

    def _patiently(self, call: Callable[[], Object]) -> None:
        """Repeat a call that the API server doesn't answer: it is away."""
        while True:
            try:
                call()
            except (OSError, http.client.HTTPException):
                pass
            except ApiError as error:
                if error.status not in IS_AWAY:
                    raise
            else:
                return
            if self._closed.wait(RETRY_S):
                return

    def _bind(self, pod: Object) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        target = {"kind": "Node", "name": NAME}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "uid": uid}, "target": target}
        self._patiently(lambda: self._api.post(f"{_path(pod)}/binding", body))

    def _run(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        self.processes[uid] = process = self._start(pod)
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
        restarts = 0
        while process is not None:
            process.join()
            if (uid, "end") in self._begun or self._closed.is_set() or self.is_lost:
                return
            restarts += 1
            self.processes[uid] = process = self._start(pod)
            running = {"running": {"startedAt": _now()}}
            self._set_status(pod, {"containerStatuses": _containers(pod, running, restarts)})

    def _end(self, pod: Object) -> None:
        process = self.processes.get(pod["metadata"]["uid"])
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
