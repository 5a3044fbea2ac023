"""A namespace with a StatefulSet `w` of real consumers, and a controller beside them, or in pods too.

    stage.create(5)
    with stage.controller("--free") as controller:
        stage.change({"replicas": 3})
        controller.wait_for("freed w-[34] of group", count=2)

House rule: a test waits for what it wants to see, and counts what it doesn't want to see behind that.
"""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coordinator.client.client import Client
from coordinator.client.errors import Refused
from coordinator.client.groups import describe_groups
from coordinator.story.described import Group
from tests.interop.brokers import Broker, create_topic
from tests.interop.fleet import ConsumerProcess, Fleet
from tests.kubernetes.control_plane import ApiError, ControlPlane, Object
from tests.kubernetes.node import Node, Process
from tests.support.patience import WITHIN_S
from tests.support.preloaded import popen
from tests.support.started import Started
from tests.support.tenure import tenure_command, wait_until

SET = "w"
PARTITIONS = 10
SETTINGS = {"group.initial.rebalance.delay.ms": "500"}
SESSION_MS = 45_000


class Controller:
    """A running `tenure seats`. command: another one in its place."""

    def __init__(self, log: Path, *arguments: str, command: tuple[str, ...] = ()) -> None:
        self.log = log
        with log.open("wb") as file:
            whole = [*(command or (*tenure_command(), "seats")), *arguments]
            self.process = popen(whole, stdin=subprocess.DEVNULL, stdout=file, stderr=file)

    @property
    def running(self) -> bool:
        """Whether it lives."""
        return self.process.poll() is None

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def join(self) -> int:
        """Wait for its end; returns its exit code."""
        return self.process.wait(WITHIN_S)

    def wait_for(self, text: str, count: int = 1) -> None:
        """Wait for that many lines with this regular expression."""

        def said() -> bool:
            assert self.running, self.log.read_text()
            return len(self.lines(text)) >= count

        try:
            wait_until(said, text, WITHIN_S)
        except TimeoutError:
            raise AssertionError(f"never said {text!r}:\n{self.log.read_text()}") from None

    def lines(self, text: str) -> list[str]:
        """The lines that it said with this regular expression."""
        return [line for line in self.log.read_text().splitlines() if re.search(text, line)]


class Closing:
    """A consumer that closes at a signal: its member of the consumer protocol is then away (epoch -2)."""

    def __init__(self, consumer: ConsumerProcess) -> None:
        self._consumer = consumer

    @property
    def running(self) -> bool:
        """Whether it lives."""
        return self._consumer.running

    def send_signal(self, _: signal.Signals) -> None:
        """Let it close and end."""
        self._consumer.tell("close")

    def join(self) -> int:
        """Wait for its end."""
        return self._consumer.join()


class Stage(Started):
    """See the module."""

    def __init__(self, plane: ControlPlane, broker: Broker, namespace: str) -> None:
        self.plane = plane
        self.broker = broker
        self.namespace = self.group_id = namespace
        self._topic = f"topic-{namespace}"
        self.fleet = Fleet(broker.bootstrap, self._topic, PARTITIONS)
        self.client = Client(broker.bootstrap, WITHIN_S)
        self.node = Node(plane.api, self._start)
        self._client = ""
        """That of the set's pods; "" while there is no set."""
        self.controllers: list[Controller] = []
        """Those that run in pods."""
        self.protocol = "classic"
        """Of the pods' consumers: classic, or consumer, whose session timeout is the server's."""
        self.closes = False
        """Whether they close when their pod ends; else SIGTERM ends their process."""

    def start(self) -> None:
        """Create the namespace and the topic, and start the node."""
        create_topic(self.broker.bootstrap, self._topic, PARTITIONS)
        self.plane.api.post("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        self.node.start()

    def close(self) -> None:
        """End the processes of all pods, and delete the set."""
        self.node.rest()
        self.client.close()
        if self._client:
            self.plane.api.delete(self._path, propagationPolicy="Background")
        self.fleet.end()
        for controller in self.controllers:
            controller.send_signal(signal.SIGKILL)
        self.node.close()

    def _start(self, pod: Object) -> Process | None:
        """Start the program of a pod."""
        metadata = pod["metadata"]
        if metadata["namespace"] != self.namespace:
            return None
        (owner,) = metadata["ownerReferences"]
        if owner["kind"] != "StatefulSet":
            return self._start_controller(pod)
        consumer = self.fleet.start(
            self._client,
            self.group_id,
            group_instance_id=metadata["name"],
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            protocol=self.protocol,
        )
        return Closing(consumer) if self.closes else consumer

    def _start_controller(self, pod: Object) -> Controller:
        """Run a pod of `tenure seats` as its container says, with the rights of its service account."""
        (container,) = pod["spec"]["containers"]
        arguments = [each.replace("$(NAMESPACE)", self.namespace) for each in container["args"]]
        arguments = [each.replace("0.0.0.0:8080", "127.0.0.1:0") for each in arguments]
        kubeconfig = str(self.kubeconfig_of(pod["spec"]["serviceAccountName"]))
        self.controllers.append(Controller(self._log(), *arguments[1:], "--kubeconfig", kubeconfig))
        return self.controllers[-1]

    def kubeconfig_of(self, account: str) -> Path:
        """The kubeconfig of a service account."""
        return account_kubeconfig(self.plane, self.namespace, account)

    def _log(self) -> Path:
        return self.plane.folder / f"{self.namespace}-{time.monotonic_ns()}.log"

    @property
    def _path(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/statefulsets/{SET}"

    def create(self, replicas: int, client: str = "confluent-kafka") -> None:
        """Create the StatefulSet, and wait until its pods are members of the group and own all partitions."""
        self._client = client
        body = a_set(SET, self.group_id, "{pod.name}", range(replicas))
        self.plane.api.post(f"/apis/apps/v1/namespaces/{self.namespace}/statefulsets", body)
        self.wait_until_owned(*names(*range(replicas)))

    def change(self, spec: Object) -> None:
        """Change the spec of the StatefulSet."""
        self.plane.api.patch(self._path, {"spec": spec})

    def pods(self) -> dict[str, Object]:
        """The pods that exist, by name."""
        found = self.plane.api.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return {pod["metadata"]["name"]: pod for pod in found}

    def delete_pod(self, name: str, **options: Any) -> None:
        """Delete a pod."""
        self.plane.api.delete(f"/api/v1/namespaces/{self.namespace}/pods/{name}", **options)

    def evict(self, name: str) -> None:
        """Evict a pod, as a drain does."""
        meta = {"name": name, "namespace": self.namespace}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}/eviction"
        self.plane.api.post(path, {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta})

    def group(self) -> Group | None:
        """The group; None while there is none."""
        found = describe_groups(self.client, [self.group_id])[self.group_id]
        return None if isinstance(found, Refused) else found

    def wait_until_members(self, count: int) -> dict[str, str]:
        """The member ids by instance id, once there are so many."""

        def found() -> dict[str, str] | None:
            group = self.group()
            members = {} if group is None else {each.group_instance_id or "": each.member_id for each in group.members}
            return members if len(members) == count else None

        return wait_until(found, f"{count} members", WITHIN_S)

    def owners(self) -> dict[int, str]:
        """The instance id of each partition's owner, in a stable group."""
        group = self.group()
        if group is None or group.state != "Stable":
            return {}
        return {
            partition: member.group_instance_id or ""
            for member in group.members
            for partitions in (member.assignment or {}).values()
            for partition in partitions
        }

    def wait_until_owned(self, *names: str) -> float:
        """Wait until these instance ids own all partitions among them; returns when, on the monotonic clock."""

        def owned() -> bool:
            owners = self.owners()
            return len(owners) == PARTITIONS and set(owners.values()) == set(names)

        try:
            wait_until(owned, f"{', '.join(names)} own all partitions", WITHIN_S)
        except TimeoutError as error:
            said = "\n".join(consumer.describe() for consumer in self.fleet.consumers)
            raise AssertionError(f"{error}\n{self.group()}\n{said}") from None
        return time.monotonic()

    def events(self) -> list[tuple[str, str]]:
        """The Events about the StatefulSet: reason and text."""
        found = self.plane.api.get(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")["items"]
        return [
            (each["reason"], each["note"])
            for each in found
            if each["regarding"]["name"] == SET and each["reportingController"] == "tenure-seats"
        ]

    def wait_until_running(self, names: set[str], but: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        """Wait until exactly these pods exist and run, none of them with one of these uids."""

        def running() -> bool:
            pods = self.pods()
            return set(pods) == names and all(
                pod["status"]["phase"] == "Running" and pod["metadata"]["uid"] not in but for pod in pods.values()
            )

        wait_until(running, f"pods {', '.join(sorted(names))} run", WITHIN_S)

    @contextmanager
    def controller(self, *arguments: str) -> Iterator[Controller]:
        """A controller for a block, once it is ready and has the lease."""
        common = ("--kubeconfig", str(self.plane.kubeconfig), "--namespace", self.namespace)
        started = Controller(self._log(), *common, "--bootstrap-server", self.broker.bootstrap, *arguments)
        try:
            started.wait_for("^ready ")
            started.wait_for("has the lease")
            yield started
        except (AssertionError, TimeoutError, ApiError):
            print(started.log.read_text())
            raise
        finally:
            started.send_signal(signal.SIGTERM)
            code = started.join()
        assert code == 0, started.log.read_text()


def a_set(name: str, group_id: str, instance_id: str, ordinals: range) -> Object:
    """A StatefulSet whose pods name seats of a group."""
    labels = {"app": name}
    annotations = {"tenure.dev/group": group_id, "tenure.dev/instance-id": instance_id}
    spec = {
        "serviceName": name,
        "replicas": len(ordinals),
        "ordinals": {"start": ordinals.start},
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels, "annotations": annotations},
            "spec": {"containers": [{"name": "worker", "image": "worker"}]},
        },
    }
    return {"metadata": {"name": name}, "spec": spec}


def account_kubeconfig(plane: ControlPlane, namespace: str, account: str) -> Path:
    """The kubeconfig of a service account."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    return plane.kubeconfig_of(f"{namespace}-{account}", plane.api.post(path, asked)["status"]["token"])


def names(*ordinals: int) -> list[str]:
    """The names of the set's pods."""
    return [f"{SET}-{ordinal}" for ordinal in ordinals]
