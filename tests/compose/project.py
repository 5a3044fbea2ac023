"""The compose files for the tests: commands, a compose project of its own, and the `Story` of one run.

House rule: this module touches only containers and volumes of its run, and every command has a time limit.
"""

from __future__ import annotations

import json
import os
import subprocess
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.tenure import wait_until

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker" / "docker-compose.yml"
SECURE = ROOT / "docker" / "docker-compose.secure.yml"
CLUSTER = ROOT / "docker" / "docker-compose.cluster.yml"
MADE = "/secrets/made"
"""The folder of a service's secrets, in its container."""

BASE_IMAGE = os.environ.get("BASE_IMAGE", "python:3.11-slim-bookworm")
TAG = "test"
GROUP = "workers"
CONSUMERS = ("consumer-1", "consumer-2", "consumer-3")
NODES = ("node-0", "node-1", "node-2")

BUILT_WITHIN_S = 600.0
DONE_WITHIN_S = 240.0
AUDITED_WITHIN_S = 480.0
WHOLE_WITHIN_S = 60.0

JsonLine = dict[str, Any]
Place = tuple[int, int]


def run(*command: str, within_s: float = DONE_WITHIN_S, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; with `check` its failure fails the test and shows all its output."""
    environment = {**os.environ, "TAG": TAG}
    engine = os.environ.get("DOCKER_HOST", "")
    if engine.startswith("unix://"):
        environment.setdefault("DOCKER_SOCKET", engine.removeprefix("unix://"))
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=within_s, check=False
    )
    if check and done.returncode != 0:
        pytest.fail(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done


def docker(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run docker."""
    return run("docker", *arguments, check=check)


def image(name: str) -> str:
    """Return the tagged name of an image of this run."""
    return f"{name}:{TAG}"


def image_size(name: str) -> int:
    """Return the bytes of an image, unpacked."""
    return int(docker("image", "inspect", "--format", "{{.Size}}", name).stdout)


def json_lines(text: str) -> list[JsonLine]:
    """Return the lines that are JSON objects."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


class Project:
    """A compose project of this run.

    kind: "plain"; "secure" with TLS, users and ACLs; "cluster" of three nodes on etcd.
    """

    def __init__(self, kind: str) -> None:
        self.name = f"tenure-test-{os.getpid()}-{kind}"
        files = [f"--file={file}" for file in {"plain": (FILE,), "secure": (FILE, SECURE), "cluster": (CLUSTER,)}[kind]]
        plugin = run("docker", "compose", "version", check=False).returncode == 0
        self._command = [*(["docker", "compose"] if plugin else ["docker-compose"]), "-p", self.name, *files]
        at = ("--bootstrap-server", "coordinator:9093", "--command-config", f"{MADE}/admin.properties")
        self._as_admin = at if kind == "secure" else ()
        self._server = NODES[0] if kind == "cluster" else "coordinator"
        self._builder = ThreadPoolExecutor()
        self._builds: list[Future[None]] = []

    def compose(
        self, *arguments: str, within_s: float = DONE_WITHIN_S, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run compose."""
        return run(*self._command, *arguments, within_s=within_s, check=check)

    def build(self, service: str) -> None:
        """Build a service's image."""
        self.compose("build", service, within_s=BUILT_WITHIN_S)

    def begin_to_build(self, service: str) -> None:
        """Build a service's image in the background."""
        self._builds.append(self._builder.submit(self.build, service))

    def wait_until_built(self) -> None:
        """Wait for all background builds; a failed one fails the test."""
        for build in self._builds:
            build.result()

    def container(self, service: str) -> str:
        """Return the id of a service's container."""
        return self.compose("ps", "-q", service).stdout.strip()

    def output(self, service: str) -> list[JsonLine]:
        """Return a service's JSON lines over all its starts: standard output, then standard error."""
        logs = docker("logs", self.container(service))
        return json_lines(logs.stdout) + json_lines(logs.stderr)

    def seats(self) -> dict[str, str] | None:
        """Return member ids by instance id, once the group is stable and every consumer is in it."""
        asked = ("tenure", "groups", "describe", GROUP, "--members", "--output", "json", *self._as_admin)
        found = self.compose("exec", "-T", self._server, *asked, check=False)
        if found.returncode != 0:
            return None
        (group,) = json.loads(found.stdout)
        seats = {member["group_instance_id"]: member["member_id"] for member in group["members"]}
        return seats if group["state"] == "Stable" and sorted(seats) == sorted(CONSUMERS) else None


@dataclass(frozen=True, slots=True)
class Story:
    """The facts of one run.

    before, after: the coordinator's log lines until the first harm, and from then on. harm: chaos's lines.
    acknowledged, consumed: (partition, offset) of messages, once for each line about them. audited: the audit of the
    log, if there was one. found: its summary, empty without one.
    """

    project: Project
    health: str
    before: list[JsonLine]
    after: list[JsonLine]
    harm: list[JsonLine]
    acknowledged: list[Place]
    consumed: list[Place]
    audited: subprocess.CompletedProcess[str] | None = None
    found: JsonLine = field(default_factory=dict)


def live_through(project: Project) -> Story:
    """Run everything from a complete group to the last message; the project is up."""
    wait_until(project.seats, "three consumers share the topic", WHOLE_WITHIN_S)
    health = docker("inspect", "--format", "{{.State.Health.Status}}", project.container("coordinator")).stdout.strip()
    mark = len(project.output("coordinator"))

    harm = json_lines(project.compose("run", "--rm", "chaos").stdout)

    project.compose("stop", "producer")
    acknowledged = _places(project.output("producer"), "acknowledged")

    def consumed() -> list[Place]:
        return [place for consumer in CONSUMERS for place in _places(project.output(consumer), "consumed")]

    wait_until(lambda: set(acknowledged) <= set(consumed()), "what was acknowledged is consumed", WHOLE_WITHIN_S)
    events = project.output("coordinator")
    return Story(project, health, events[:mark], events[mark:], harm, acknowledged, consumed())


@dataclass(frozen=True, slots=True)
class ClusterStory:
    """The facts of one run of the cluster.

    before, after: the log lines of all nodes until the first harm, and from then on. harm: chaos's lines. told: the
    lines of each consumer, in order.
    """

    before: list[JsonLine]
    after: list[JsonLine]
    harm: list[JsonLine]
    told: dict[str, list[JsonLine]]


def live_through_cluster(project: Project) -> ClusterStory:
    """Run everything from a complete group to the end of chaos; the project is up."""
    wait_until(project.seats, "three consumers share the topic", WHOLE_WITHIN_S)
    marks = {node: len(project.output(node)) for node in NODES}
    harm = json_lines(project.compose("run", "--rm", "chaos").stdout)
    events = {node: project.output(node) for node in NODES}
    return ClusterStory(
        [line for node, mark in marks.items() for line in events[node][:mark]],
        [line for node, mark in marks.items() for line in events[node][mark:]],
        harm,
        {consumer: project.output(consumer) for consumer in CONSUMERS},
    )


def audit(story: Story) -> Story:
    """Audit the log; the coordinator still runs."""
    project = story.project
    project.wait_until_built()
    audited = project.compose("run", "--rm", "audit", within_s=AUDITED_WITHIN_S, check=False)
    volume = f"{project.name}_found:/found:ro"
    cat = ("--entrypoint", "cat", image("tenure-audit"), "/found/summary.json")
    summary = docker("run", "--rm", "-v", volume, *cat, check=False).stdout
    return replace(story, audited=audited, found=json.loads(summary or "{}"))


def _places(lines: list[JsonLine], event: str) -> list[Place]:
    return [(line["partition"], line["offset"]) for line in lines if line["event"] == event]
