"""The manifests of examples/kubernetes/seats.yaml on a real API server: form, and rights of the controller."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.kubernetes.control_plane import ApiError, Object
from tests.kubernetes.stage import Stage, names

pytestmark = pytest.mark.kubernetes

FILE = Path(__file__).resolve().parents[2] / "examples" / "kubernetes" / "seats.yaml"
COLLECTIONS = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
}


def documents() -> list[Object]:
    """What the file has."""
    return list(yaml.safe_load_all(FILE.read_text()))


def test_the_api_server_takes_the_manifests(stage: Stage) -> None:
    """Each one, without a field that it doesn't know."""
    *others, deployment = documents()

    def post(document: Object) -> None:
        path = COLLECTIONS[document["kind"]].format(stage.namespace)
        stage.plane.api.post(f"{path}?dryRun=All&fieldValidation=Strict", document)

    for document in (*others, deployment):
        post(document)
    deployment["spec"]["replica"] = 3
    with pytest.raises(ApiError, match="unknown field"):
        post(deployment)


def test_the_rights_of_the_manifests_are_enough(stage: Stage) -> None:
    """The controller follows, holds the lease, frees a seat and writes an Event, as the service account of the file."""
    for document in documents():
        if document["kind"] in {"ServiceAccount", "Role", "RoleBinding"}:
            stage.plane.api.post(COLLECTIONS[document["kind"]].format(stage.namespace), document)
    account = f"{COLLECTIONS['ServiceAccount'].format(stage.namespace)}/tenure-seats"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = stage.plane.api.post(f"{account}/token", asked)["status"]["token"]
    stage.create("w", 2)
    stage.wait_until_owned(*names("w", 0, 1))
    kubeconfig = stage.plane.kubeconfig_of(stage.namespace, token)
    with stage.controller("--free", "--kubeconfig", str(kubeconfig)) as controller:
        controller.wait_for("has the lease")
        stage.change("w", {"replicas": 1})
        controller.wait_for("freed w-1 of group")
    assert controller.lines("no Event|trying again") == []
    assert [reason for reason, _ in stage.events("w")] == ["SeatFreed"]
