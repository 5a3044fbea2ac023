"""The manifests and the chart of `tenure seats` (examples/kubernetes) on a real API server: form, rights, a release."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes.control_plane import RELEASE as RELEASE_OF_KUBERNETES
from tests.kubernetes.control_plane import ApiError, Object
from tests.kubernetes.helm import helm
from tests.kubernetes.stage import Stage
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until

pytestmark = pytest.mark.kubernetes
on_tenure = pytest.mark.parametrize("broker", ["tenure"], indirect=True)

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "kubernetes"
CHART = EXAMPLES / "chart"
RELEASE = "tenure-seats"
NEEDED = {"image": "registry.example/tenure:1", "bootstrapServer": "kafka:9092"}
CLUSTER = ("--kube-version", RELEASE_OF_KUBERNETES)
RIGHTS = "/apis/rbac.authorization.k8s.io/v1"
COLLECTIONS = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Role": f"{RIGHTS}/namespaces/{{}}/roles",
    "RoleBinding": f"{RIGHTS}/namespaces/{{}}/rolebindings",
    "ClusterRole": f"{RIGHTS}/clusterroles",
    "ClusterRoleBinding": f"{RIGHTS}/clusterrolebindings",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
}
ALL_VALUES = {
    "free": True,
    "allNamespaces": True,
    "anyHost": True,
    "commandConfigSecret": "login",
    "replicas": 3,
    "imagePullSecrets[0].name": "pull",
    "resources.limits.memory": "256Mi",
}


def settings(values: dict[str, Any]) -> Iterable[str]:
    """Values as arguments of Helm."""
    for name, value in values.items():
        yield "--set"
        yield f"{name}={str(value).lower() if isinstance(value, bool) else value}"


def rendered(values: dict[str, Any] | None = None, namespace: str = "shop", release: str = RELEASE) -> list[Object]:
    """The objects that the chart makes of values."""
    done = helm("template", release, str(CHART), "--namespace", namespace, *CLUSTER, *settings(NEEDED | (values or {})))
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def manifests() -> list[Object]:
    """The objects of the file of manifests."""
    return list(yaml.safe_load_all((EXAMPLES / "seats.yaml").read_text()))


def post(stage: Stage, document: Object, options: str = "") -> None:
    """Create an object."""
    stage.plane.api.post(f"{COLLECTIONS[document['kind']].format(stage.namespace)}{options}", document)


def test_the_chart_makes_the_controller_of_the_manifests() -> None:
    """The chart makes the objects of the manifests, but for the set of consumers."""
    wanted = [each for each in manifests() if each["kind"] != "StatefulSet"]
    assert sorted(rendered(), key=lambda each: each["kind"]) == sorted(wanted, key=lambda each: each["kind"])


def test_the_chart_belongs_to_this_version() -> None:
    """Its appVersion is the project's, and Helm finds nothing to say about its form."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == project["version"]
    done = helm("lint", "--strict", str(CHART), *CLUSTER, *settings(NEEDED))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, "image"),
        (NEEDED | {"bootstrapServer": "kafka"}, "bootstrapServer"),
        (NEEDED | {"frees": True}, "frees"),
        (NEEDED | {"replicas": "two"}, "replicas"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any], text: str) -> None:
    """The chart's schema refuses wrong values, and names them."""
    done = helm("template", RELEASE, str(CHART), *CLUSTER, *settings(values))
    assert done.returncode != 0
    assert text in done.stderr


@on_tenure
def test_the_api_server_takes_all_documents(stage: Stage) -> None:
    """The API server knows each field of the manifests, and of the chart with few values and with all."""
    charts = [*rendered(), *rendered(ALL_VALUES, release="other")]
    for document in (*manifests(), *charts):
        post(stage, document, "?dryRun=All&fieldValidation=Strict")
    (deployment,) = (each for each in rendered() if each["kind"] == "Deployment")
    deployment["spec"]["replica"] = 3
    with pytest.raises(ApiError, match="unknown field"):
        post(stage, deployment, "?dryRun=All&fieldValidation=Strict")


@on_tenure
@pytest.mark.parametrize("source", ["manifests", "chart", "chart for all namespaces"])
def test_the_rights_are_enough(stage: Stage, source: str) -> None:
    """The controller follows, holds the lease, frees a seat and writes an Event, as its service account."""
    name = RELEASE if source != "chart for all namespaces" else stage.namespace
    found = (
        manifests() if source == "manifests" else rendered({"allNamespaces": name != RELEASE}, stage.namespace, name)
    )
    for document in found:
        if document["kind"].startswith(("ServiceAccount", "Role", "ClusterRole")):
            post(stage, document)
    stage.create(2)
    kubeconfig = stage.kubeconfig_of(name)
    everywhere = ("--namespace", "", "--lease", f"{stage.namespace}/{name}") if name != RELEASE else ()
    with stage.controller("--free", "--kubeconfig", str(kubeconfig), *everywhere) as controller:
        stage.change({"replicas": 1})
        controller.wait_for("freed w-1 of group")
    assert controller.lines("no Event|trying again") == []
    assert [reason for reason, _ in stage.events()] == ["SeatFreed"]


@on_tenure
def test_the_chart_is_installed_and_frees_seats(stage: Stage) -> None:
    """Two controllers run in their pods: one says what it would free; after `--set free=true` one of them frees it."""
    common = ("--kubeconfig", str(stage.plane.kubeconfig), "--namespace", stage.namespace)
    values = NEEDED | {"bootstrapServer": stage.broker.bootstrap}
    done = helm("install", RELEASE, str(CHART), *common, *settings(values))
    assert done.returncode == 0, done.stderr
    stage.create(4)
    wait_until(lambda: said(stage, "has the lease"), "a controller has the lease", WITHIN_S)
    stage.change({"replicas": 3})
    wait_until(lambda: said(stage, "would free w-3 of group"), "a dry run", WITHIN_S)
    wait_until(lambda: both_are_ready(stage), "both controllers are ready", WITHIN_S)
    done = helm("upgrade", RELEASE, str(CHART), *common, *settings(values | {"free": True}))
    assert done.returncode == 0, done.stderr
    wait_until(lambda: said(stage, "has the lease", of="frees=true"), "the new ones act", WITHIN_S)
    stage.change({"replicas": 2})
    wait_until(lambda: said(stage, "freed w-2 of group"), "the seat is free", WITHIN_S)
    group = stage.group()
    assert group is not None
    assert "w-2" not in {member.group_instance_id for member in group.members}
    wait_until(lambda: both_are_ready(stage, "frees=true"), "both new ones are ready", WITHIN_S)
    done = helm("uninstall", RELEASE, *common)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: not any(each.running for each in stage.controllers), "the controllers end", WITHIN_S)
    assert {each.join() for each in stage.controllers} == {0}


def both_are_ready(stage: Stage, of: str = "ready ") -> bool:
    """Whether two controllers run in pods, and both said this. One that still starts would end by the signal itself."""
    running = [each for each in stage.controllers if each.running]
    return len(running) == 2 and all(each.lines("^ready ") and each.lines(of) for each in running)


def said(stage: Stage, text: str, of: str = "ready ") -> bool:
    """Whether a controller in a pod said this, of those that said something else too."""
    return any(each.lines(text) and each.lines(of) for each in stage.controllers)
