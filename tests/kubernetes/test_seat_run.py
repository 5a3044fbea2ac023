"""`tenure seat run --kubernetes` on a real API server: examples/kubernetes/seat-run.yaml, and random faults."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.interop.brokers import TenureBroker
from tests.kubernetes.control_plane import ControlPlane, Object
from tests.kubernetes.stage import account_kubeconfig
from tests.kubernetes.test_examples import COLLECTIONS
from tests.seats.leased import NAMES, SETTINGS, Round
from tests.support.patience import WITHIN_S
from tests.support.preloaded import popen, run
from tests.support.tenure import Tenure, tenure_command, wait_until

pytestmark = pytest.mark.kubernetes

FILE = Path(__file__).resolve().parents[2] / "examples" / "kubernetes" / "seat-run.yaml"


def documents() -> list[Object]:
    """The objects of the file."""
    return list(yaml.safe_load_all(FILE.read_text()))


def test_the_example_has_the_form_and_the_rights(plane: ControlPlane, tmp_path: Path) -> None:
    """Each document is taken, and its service account's rights are enough for its command."""
    namespace = "seat-run"
    plane.api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    for document in documents():
        plane.api.post(f"{COLLECTIONS[document['kind']].format(namespace)}?fieldValidation=Strict", document)
    kubeconfig = account_kubeconfig(plane, namespace, "orders")
    (container,) = documents()[-1]["spec"]["template"]["spec"]["containers"]
    program, *words = container["command"]
    assert program == "tenure"
    words[words.index("python") :] = ["sh", "-c", "echo began $GROUP_INSTANCE_ID; sleep 600"]
    words[2:2] = ["--kubeconfig", str(kubeconfig), "--namespace", namespace]
    started: list[subprocess.Popen[Any]] = []
    out = tmp_path / "out"

    def began() -> list[str]:
        return [line for line in out.read_text().splitlines() if line.startswith("began ")]

    with out.open("ab") as log:
        for pod in "ab":  # each has a host name of its own
            command = [*tenure_command(), *words[:2], "--identity", pod, *words[2:]]
            started.append(popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
    try:
        wait_until(lambda: len(began()) == len(started), "both programs have names", WITHIN_S)
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
    assert [process.wait(WITHIN_S) for process in started] == [128 + signal.SIGTERM] * 2, out.read_text()
    assert len(set(began())) == len(started)
    leases = plane.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")["items"]
    assert [lease["spec"].get("holderIdentity", "") for lease in leases] == [""] * 2


@pytest.mark.parametrize("text", ["Unauthorized", 'cannot list resource "leases"'])
def test_a_refusal_ends_the_command(plane: ControlPlane, text: str) -> None:
    """With a wrong token, or without a right, a line says why, and the last one where the names are."""
    if text == "Unauthorized":
        kubeconfig = plane.kubeconfig_of("wrong", "a-wrong-token")
    else:
        kubeconfig = account_kubeconfig(plane, "default", "default")
    options = ["--kubernetes", "--kubeconfig", str(kubeconfig), "--namespace", "default"]
    ran = run([*tenure_command(), "seat", "run", "--pool", "w", *options, "--", "echo", "began"])
    assert (ran.returncode, ran.stdout) == (4, "")
    why, last = ran.stderr.splitlines()
    assert text in why
    assert last == "tenure: no name of w can be had from namespace default"


def test_programs_that_are_killed_and_paused(plane: ControlPlane, tmp_path: Path) -> None:
    """For 20 s, no name has two programs that work; `tests.seats.leased --kubernetes` takes longer."""
    lease = ["--kubernetes", "--kubeconfig", str(plane.kubeconfig), "--namespace", "default"]
    with Tenure(SETTINGS) as tenure, Round(TenureBroker(tenure), tmp_path, lease, seed=1) as made:
        made.run(1 / 3)
        assert len({line.name for line in made.lines()}) == NAMES
        late = made.late()[1]
        assert (made.shared_tokens(), made.rebalances) == (0, 0), made.figures()
        assert late == [], made.story(late[0])
