"""The examples for Kubernetes: their schemas, what belongs together in them, and a pod's command and probes, run here.

The validator brings the schemas of each release of Kubernetes, 108 MB, so it has an environment of its own in
build/kubernetes, from tests/requirements/kubernetes.txt.

House rule: what a file says is read from the file.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from coordinator.server import app
from requirements.dist import ROOT
from tests.support.etcd import Etcd
from tests.support.patience import WITHIN_S
from tests.support.tenure import READY_LINE, tenure_command, wait_until

pytestmark = pytest.mark.dist

LOCK = Path(__file__).with_name("kubernetes.txt")
ENVIRONMENT = ROOT / "build" / "kubernetes"
FILES = sorted([*(ROOT / "examples/kubernetes").glob("*.yaml"), *(ROOT / "examples/rolling").glob("*.yaml")])
RELEASES = ("1.28", "1.31", "1.34", "1.37")
PAGE = re.compile(r"HTTP: http://127.0.0.1:(\d+)")
STOP_AT_MOST_S = app.LEAVE_WITHIN_S + 2 * app.STOP_WITHIN_S + 2 * app.CLOSE_WITHIN_S
"""Handing over; appends, then answers; the logs of topics and of groups. Tests have longer limits than a server."""
TO_JSON = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(sys.stdin)), sys.stdout)"

Document = dict[str, Any]


@pytest.fixture(scope="session")
def python() -> str:
    """Return the interpreter of the validator's environment, which is made anew if its lock has changed."""
    stamp, interpreter = ENVIRONMENT / "lock.txt", str(ENVIRONMENT / "bin" / "python")
    if not stamp.exists() or stamp.read_text() != LOCK.read_text():
        run(sys.executable, "-m", "venv", "--clear", "--without-pip", str(ENVIRONMENT))
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--python", interpreter)
        run(*pip, "install", "--quiet", "--require-hashes", "--only-binary", ":all:", "--requirement", str(LOCK))
        stamp.write_text(LOCK.read_text())
    return interpreter


def run(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command; its failure fails the test and shows its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WITHIN_S, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done


def validate(python: str, release: str, *files: Path) -> subprocess.CompletedProcess[str]:
    """Validate files; unknown fields are errors."""
    command = [python, "-m", "kubernetes_validate", "--strict", "--kubernetes-version", release, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=WITHIN_S)


@pytest.fixture(scope="session")
def kinds(python: str) -> dict[str, dict[str, Document]]:
    """Return the documents of the nodes and their etcd by application, then by kind."""
    found: dict[str, dict[str, Document]] = {}
    for file in FILES:
        if file.stem in {"etcd", "tenure"}:
            text = run(python, "-c", TO_JSON, input=file.read_text()).stdout
            found[file.stem] = {document["kind"]: document for document in json.loads(text)}
    return found


@pytest.fixture(scope="session")
def container(kinds: dict[str, dict[str, Document]]) -> Document:
    """Return the container of a node."""
    (found,) = kinds["tenure"]["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("release", RELEASES)
def test_the_examples_have_the_form_of_each_release(python: str, release: str) -> None:
    """Every document passes."""
    done = validate(python, release, *FILES)
    assert (done.returncode, done.stdout.count(" passed for ")) == (0, 17), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("replicas: 3", "replicas: three"), ("periodSeconds: 10", "period: 10")],
)
def test_the_validator_finds_faults(python: str, tmp_path: Path, right: str, wrong: str) -> None:
    """A wrong type and a field that doesn't exist are refused."""
    text = (ROOT / "examples/kubernetes/tenure.yaml").read_text()
    assert right in text
    file = tmp_path / "wrong.yaml"
    file.write_text(text.replace(right, wrong))
    assert validate(python, RELEASES[-1], file).returncode != 0


def test_what_belongs_together_has_one_name(kinds: dict[str, dict[str, Document]]) -> None:
    """Service, PodDisruptionBudget and StatefulSet mean the same pods, and one of them may be away."""
    for name, documents in kinds.items():
        service, budget, pods = (documents[kind]["spec"] for kind in ("Service", "PodDisruptionBudget", "StatefulSet"))
        labels = pods["template"]["metadata"]["labels"]
        assert service["selector"] == labels
        assert budget["selector"]["matchLabels"] == pods["selector"]["matchLabels"] == labels
        assert pods["serviceName"] == documents["Service"]["metadata"]["name"] == name
        assert service["clusterIP"] == "None"
        assert (pods["replicas"], budget["maxUnavailable"]) == (3, 1)
        (container,) = pods["template"]["spec"]["containers"]
        ports = {port["containerPort"] for port in container["ports"]}
        assert {port["port"] for port in service["ports"]} == ports


def test_nodes_know_all_members_of_etcd(kinds: dict[str, dict[str, Document]], container: Document) -> None:
    """The addresses in `--store` are those of etcd's pods, and etcd's members know each other."""
    replicas = kinds["etcd"]["StatefulSet"]["spec"]["replicas"]
    (member,) = kinds["etcd"]["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    hosts = [f"etcd-{number}.etcd" for number in range(replicas)]
    assert f"--store=etcd://{','.join(f'{host}:2379' for host in hosts)}" in container["args"]
    peers = ",".join(f"etcd-{number}=http://{host}:2380" for number, host in enumerate(hosts))
    assert f"--initial-cluster={peers}" in member["command"]


def test_a_pod_has_time_to_hand_over(kinds: dict[str, dict[str, Document]]) -> None:
    """Kubernetes waits longer for a pod's end than all time limits of a server's stop together."""
    grace_s = kinds["tenure"]["StatefulSet"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s > STOP_AT_MOST_S


class Pod:
    """A node that runs as its container says, with other addresses."""

    def __init__(self, container: Document, etcd: Etcd, folder: Path, number: int) -> None:
        self._container = container
        variables = {
            "POD": f"tenure-{number}",
            "NODE_ID": str(number),
            "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:0",
            "KAFKA_LOG_DIRS": str(folder / f"data-{number}"),
        }
        for each in container["env"]:
            if "value" in each:
                variables[each["name"]] = expand(each["value"], variables)
        arguments = [expand(each, variables) for each in container["args"]]
        local = {"--store": etcd.store, "--http": "127.0.0.1:0"}
        arguments = [f"{name}={local.get(name, value)}" if value else name for name, _, value in map(split, arguments)]
        self._variables = {**clean(os.environ), **variables}
        self._log = folder / f"log-{number}"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*tenure_command(), *arguments], env=self._variables, cwd=folder, stdout=log, stderr=log
            )

    def wait(self) -> None:
        """Wait until the server has said that it is ready."""
        ready = wait_until(lambda: READY_LINE.search(self._log.read_text()), "ready line", WITHIN_S)
        page = wait_until(lambda: PAGE.search(self._log.read_text()), "a line about HTTP", WITHIN_S)
        self._variables["KAFKA_LISTENERS"] = f"PLAINTEXT://{ready['listen']}"
        self._http = f"127.0.0.1:{page[1]}"

    def probe(self, name: str) -> bool:
        """Run a probe of the container; returns whether it succeeds."""
        command = [
            each.replace("/tenure/health.py", str(ROOT / "docker/health.py")).replace("127.0.0.1:8080", self._http)
            for each in self._container[name]["exec"]["command"]
        ]
        assert command[0] == "python"
        variables = {**self._variables, "PYTHONPATH": str(ROOT)}
        done = subprocess.run([sys.executable, *command[1:]], env=variables, capture_output=True, check=False)
        return done.returncode == 0


def split(argument: str) -> tuple[str, str, str]:
    """An argument's name and value."""
    return argument.partition("=")


def expand(text: str, variables: dict[str, str]) -> str:
    """Put variables in, as Kubernetes does."""
    return re.sub(r"\$\((\w+)\)", lambda match: variables[match[1]], text)


def clean(environment: Any) -> dict[str, str]:
    """Variables that are no settings."""
    return {name: text for name, text in environment.items() if not name.startswith(("KAFKA_", "TENURE_"))}


@contextmanager
def pods(container: Document, etcd: Etcd, folder: Path, count: int) -> Iterator[list[Pod]]:
    """Yield pods whose servers accept requests."""
    started: list[Pod] = []
    try:
        started = [Pod(container, etcd, folder, number) for number in range(count)]
        for pod in started:
            pod.wait()
        yield started
    finally:
        for pod in started:
            if pod.process.poll() is None:
                pod.process.kill()
            pod.process.wait(WITHIN_S)


@pytest.mark.etcd
def test_probes_follow_the_claims(container: Document, tmp_path: Path) -> None:
    """Pods become ready; without etcd they are not, but they live; a pod that got SIGTERM ends in order."""
    with Etcd(members=3) as etcd, pods(container, etcd, tmp_path, 2) as started:
        for pod in started:
            wait_until(lambda pod=pod: pod.probe("readinessProbe"), "the pod is ready", WITHIN_S)  # type: ignore[misc]
            assert pod.probe("livenessProbe")
        for member in etcd.members:
            member.freeze()
        for pod in started:
            wait_until(lambda pod=pod: not pod.probe("readinessProbe"), "not ready", WITHIN_S)  # type: ignore[misc]
            assert pod.probe("livenessProbe")
        for member in etcd.members:
            member.thaw()
        etcd.wait_for(0)
        for pod in started:
            wait_until(lambda pod=pod: pod.probe("readinessProbe"), "ready again", WITHIN_S)  # type: ignore[misc]
        started[0].process.terminate()
        assert started[0].process.wait(WITHIN_S) == 0
        wait_until(lambda: started[1].probe("readinessProbe"), "the other one has all", WITHIN_S)
