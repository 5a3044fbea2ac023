"""The costs of `tenure seats` with many sets and pods, on a real API server.

    python -m tests.kubernetes.costs --sets 1000 --pods 10000

The sets and pods are created directly, for no controllers run. Then it measures the command as a process of its own:
until it is ready, while nothing happens, while pods change, and while one set is scaled to zero.

House rule: memory and CPU are the kernel's numbers for that process.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from coordinator.testing.members import fill
from tests.kubernetes.control_plane import MISSING, ControlPlane, Object, headers, program
from tests.support.certificates import make_certificates
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure, wait_until

NAMESPACE = "default"
SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
THREADS = 8
CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
TIME = "2026-01-01T00:00:00Z"
TICKS = os.sysconf("SC_CLK_TCK")


class Used(NamedTuple):
    """CPU in seconds, and resident memory in MiB: at present, and at most so far."""

    cpu: float
    resident: float
    peak: float


def used(pid: int) -> Used:
    """The CPU and memory that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text()
    memory = {name: int(kib) / 1024 for name, kib in re.findall(r"(VmRSS|VmHWM):\s+(\d+) kB", status)}
    return Used((int(fields[11]) + int(fields[12])) / TICKS, memory["VmRSS"], memory["VmHWM"])


def a_set(number: int, replicas: int) -> Object:
    """A StatefulSet; its pods are its group's members."""
    name, labels = f"set-{number}", {"app": f"set-{number}"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "worker", "image": "worker"}]}}
    selector = {"matchLabels": labels}
    spec = {"serviceName": name, "replicas": replicas, "selector": selector, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


def a_pod(number: int, ordinal: int, uid: str) -> Object:
    """One of its pods, on a node."""
    name = f"set-{number}"
    variables = [{"name": f"SETTING_{each}", "value": f"value-{each}"} for each in range(20)]
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": uid, "controller": True}
    return {
        "metadata": {
            "name": f"{name}-{ordinal}",
            "labels": {"app": name, "statefulset.kubernetes.io/pod-name": f"{name}-{ordinal}"},
            "annotations": {"tenure.dev/group": name, "tenure.dev/instance-id": "{pod.name}"},
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": "node-0",
            "automountServiceAccountToken": False,
            "containers": [{"name": "worker", "image": "registry.example/worker:1", "env": variables}],
        },
    }


def a_status(phase: str, **state: Object) -> Object:
    """A pod's status, as a kubelet writes it."""
    container = {
        "name": "worker",
        "image": "registry.example/worker:1",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
    }
    return {
        "status": {
            "phase": phase,
            "podIP": "127.0.0.1",
            "hostIP": "127.0.0.1",
            "startTime": TIME,
            "conditions": [{"type": each, "status": "True", "lastTransitionTime": TIME} for each in CONDITIONS],
            "containerStatuses": [{**container, "state": state}],
        }
    }


RUNNING = a_status("Running", running={"startedAt": TIME})
ENDED = a_status("Succeeded", terminated={"exitCode": 0})


class Costs:
    """See the module."""

    def __init__(self, plane: ControlPlane, tenure: Tenure, sets: int, pods: int) -> None:
        self.plane = plane
        self.tenure = tenure
        self.sets, self.each = sets, pods // sets
        self._local = threading.local()

    def call(self, method: str, path: str, body: Object, kind: str = "application/json") -> Object:
        """A request, on a connection of this thread."""
        if not hasattr(self._local, "connection"):
            self._local.connection = self.plane.api.connection()
        connection: http.client.HTTPSConnection = self._local.connection
        connection.request(method, path, json.dumps(body), headers(kind))
        response = connection.getresponse()
        answer: Object = json.loads(response.read())
        assert response.status < 300, answer
        return answer

    def set_status(self, name: str, status: Object) -> None:
        """A kubelet writes a pod's status."""
        self.call("PATCH", f"{PODS}/{name}/status", status, "application/merge-patch+json")

    def make(self) -> None:
        """Create all sets and pods."""

        def one(number: int) -> None:
            uid = self.call("POST", SETS, a_set(number, self.each))["metadata"]["uid"]
            for ordinal in range(self.each):
                self.call("POST", PODS, a_pod(number, ordinal, uid))
                self.set_status(f"set-{number}-{ordinal}", RUNNING)

        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(one, range(self.sets)))

    def end_pod(self, number: int, ordinal: int) -> None:
        """A pod ends as its kubelet ends it."""
        name = f"set-{number}-{ordinal}"
        self.set_status(name, ENDED)
        self.call("DELETE", f"{PODS}/{name}", {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})


def measure(costs: Costs, seconds: float, log: Path, say: Callable[[str], None]) -> None:
    """Start the controller, and say what it takes."""
    command = [str(Path(sys.executable).with_name("tenure")), "seats", "--free"]
    command += ["--kubeconfig", str(costs.plane.kubeconfig), "--bootstrap-server", costs.tenure.bootstrap]
    began = time.monotonic()
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            wait_until(lambda: "ready " in log.read_text(), "ready", WITHIN_S)
            took, ready = time.monotonic() - began, used(process.pid)
            say(f"ready after {took:.1f} s, with {ready.cpu:.1f} s of CPU")
            wait_until(lambda: "has the lease" in log.read_text(), "the lease", WITHIN_S)
            threading.Event().wait(seconds / 10)
            before = used(process.pid)
            threading.Event().wait(seconds)
            after = used(process.pid)
            say(f"memory {after.resident:.0f} MiB, at most {after.peak:.0f} MiB")
            say(f"while nothing happens: {(after.cpu - before.cpu) / seconds:.2%} of a core, of {seconds:.0f} s")
            count = min(costs.sets * costs.each, 2_000)
            with ThreadPoolExecutor(THREADS) as threads:
                names = [f"set-{each % costs.sets}-{each // costs.sets}" for each in range(count)]
                list(threads.map(lambda name: costs.set_status(name, a_status("Running", running={})), names))
            threading.Event().wait(seconds / 10)
            say(f"a change of a pod: {(used(process.pid).cpu - after.cpu) / count * 1000:.2f} ms of CPU")
            scale_down(costs, log, say)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(WITHIN_S)


def scale_down(costs: Costs, log: Path, say: Callable[[str], None]) -> None:
    """Scale one set to zero, and let its pods end at one time."""
    with fill(costs.tenure.bootstrap, "set-0", costs.each, client_id="set-0") as members:
        members.wait_until_seated()
        for index in range(costs.each):
            members.fall_silent(index)
        costs.call("PATCH", f"{SETS}/set-0", {"spec": {"replicas": 0}}, "application/merge-patch+json")
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(lambda ordinal: costs.end_pod(0, ordinal), range(costs.each)))
        ended = time.monotonic()
        wait_until(lambda: log.read_text().count("  freed ") == costs.each, "all seats are free", WITHIN_S)
        say(f"{costs.each} pods ended: their seats were free {time.monotonic() - ended:.1f} s after the last one's end")


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    if program() is None:
        sys.exit(MISSING)
    with (
        tempfile.TemporaryDirectory() as folder,
        ControlPlane(make_certificates(Path(folder)), is_managed=False) as plane,
        Tenure() as tenure,
    ):
        plane.api.post("/api/v1/nodes", {"metadata": {"name": "node-0"}})
        plane.api.post(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})
        costs = Costs(plane, tenure, arguments.sets, arguments.pods)
        costs.make()
        print(f"{arguments.sets} sets, {arguments.pods} pods")
        measure(costs, arguments.seconds, Path(folder, "log"), print)


if __name__ == "__main__":
    main()
