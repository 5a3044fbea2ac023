"""coordinator.seats.pods: the facts about seats in objects of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.seats.pods import GROUP, INSTANCE_ID, Object, Seat, read_pod, read_set


def pod(instance_id: str = "{pod.name}", **status: Any) -> Object:
    """A pod of the set w, as the API server has it."""
    return {
        "metadata": {
            "uid": "u-4",
            "namespace": "shop",
            "name": "w-4",
            "labels": {"apps.kubernetes.io/pod-index": "4"},
            "annotations": {GROUP: "orders", INSTANCE_ID: instance_id},
            "ownerReferences": [{"kind": "StatefulSet", "name": "w", "uid": "s", "controller": True}],
        },
        "spec": {"nodeName": "n", "containers": [{"name": "worker"}]},
        "status": status,
    }


def with_variables(name: str, *variables: Object) -> Object:
    """A pod whose annotation names a variable of its container."""
    found = pod(name)
    found["spec"]["containers"] = [{"name": "sidecar"}, {"name": "worker", "env": list(variables)}]
    return found


def seats_of(found: Object) -> tuple[Seat, ...]:
    """The seats of a pod that can be read."""
    read = read_pod(found)
    assert read is not None
    assert read.problem == ""
    return read.seats


def problem_of(found: Object) -> str:
    """Why a pod's seats can't be read."""
    read = read_pod(found)
    assert read is not None
    assert read.seats == ()
    return read.problem


def test_a_set_wants_its_ordinals() -> None:
    """Replicas count from ordinals.start on."""
    metadata = {"uid": "s", "namespace": "shop", "name": "w"}
    assert read_set({"metadata": metadata, "spec": {"replicas": 3}}).ordinals == range(3)
    shifted = {"replicas": 3, "ordinals": {"start": 5}}
    assert read_set({"metadata": metadata, "spec": shifted}).ordinals == range(5, 8)
    assert read_set({"metadata": metadata, "spec": {"replicas": 0}}).ordinals == range(0)
    ending = metadata | {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert read_set({"metadata": ending, "spec": {"replicas": 3}}).is_ending


def test_a_pod_without_annotations_has_no_seat() -> None:
    """Such a pod is none of ours."""
    found = pod()
    found["metadata"]["annotations"] = {"other": "1"}
    assert read_pod(found) is None
    del found["metadata"]["annotations"]
    assert read_pod(found) is None


def test_a_pod_names_its_seats() -> None:
    """By its name, also several."""
    assert seats_of(pod()) == (Seat("orders", "w-4"),)
    assert seats_of(pod("{pod.name}-a, {pod.name}-b")) == (Seat("orders", "w-4-a"), Seat("orders", "w-4-b"))


@pytest.mark.parametrize(
    ("variable", "instance_id"),
    [
        ({"name": "ID", "value": "fixed"}, "fixed"),
        ({"name": "ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, "w-4"),
        ({"name": "ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}, "shop"),
        (
            {"name": "ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}}},
            "4",
        ),
        ({"name": "ID", "value": "worker-$(POD)"}, "worker-w-4"),
    ],
    ids=["value", "name", "namespace", "label", "composed"],
)
def test_a_variable_names_the_seat(variable: Object, instance_id: str) -> None:
    """The value that Kubernetes gives the variable, from the pod itself."""
    name = {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    assert seats_of(with_variables("ID", name, variable)) == (Seat("orders", instance_id),)


def test_what_cannot_be_read_is_a_problem() -> None:
    """No guess: the text says what is wrong."""
    elsewhere = {"name": "ID", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}
    assert problem_of(with_variables("ID", elsewhere)) == "variable ID comes from elsewhere than the pod"
    assert problem_of(with_variables("ID", {"name": "ID", "value": "$(X)"})).startswith("variable ID comes from")
    assert problem_of(with_variables("ID", {"name": "ID", "value": "$$(ID)"})).startswith("variable ID comes from")
    label = {"name": "ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['none']"}}}
    assert problem_of(with_variables("ID", label)).startswith("variable ID comes from")
    assert problem_of(with_variables("ID")) == "no value of variable ID"
    assert problem_of(pod("{pod.ip}")) == f"{INSTANCE_ID} '{{pod.ip}}': only {{pod.name}} can be put in"
    several = with_variables("ID", {"name": "ID", "value": "a"})
    several["spec"]["containers"][0]["env"] = [{"name": "ID", "value": "b"}]
    assert problem_of(several) == "several values of variable ID"
    alone = pod()
    del alone["metadata"]["annotations"][GROUP]
    assert problem_of(alone) == f"it has no annotation {GROUP}"


def test_only_the_controlling_set_places_a_pod() -> None:
    """An orphan, a pod of a Deployment and a pod with another name have no ordinal."""
    read = read_pod(pod())
    assert read is not None
    assert (read.set_uid, read.ordinal) == ("s", 4)
    for change in ({"controller": False}, {"kind": "ReplicaSet"}, {"name": "v"}):
        other = pod()
        other["metadata"]["ownerReferences"][0] |= change
        read = read_pod(other)
        assert read is not None
        assert (read.set_uid, read.ordinal) == ("", -1)


def test_a_pod_has_ended_when_its_kubelet_says_so() -> None:
    """A phase alone isn't enough: the garbage collector of pods sets Failed, while containers may run."""
    running: list[Object] = [{"state": {"running": {}}}]
    ended: list[Object] = [{"state": {"terminated": {}}}]

    def has_ended(**status: Any) -> bool:
        read = read_pod(pod(**status))
        assert read is not None
        return read.has_ended

    assert has_ended(phase="Succeeded", containerStatuses=ended)
    assert has_ended(phase="Failed", containerStatuses=ended)
    assert not has_ended(phase="Running", containerStatuses=ended)
    assert not has_ended(phase="Failed", containerStatuses=running)
    assert not has_ended(phase="Failed", containerStatuses=ended, initContainerStatuses=running)
    assert not has_ended()


def test_addresses_are_those_of_the_pod_and_its_node() -> None:
    """A program of the pod connects from one of them."""
    read = read_pod(pod(podIP="10.1.0.5", podIPs=[{"ip": "10.1.0.5"}, {"ip": "fd00::5"}], hostIP="10.0.0.1"))
    assert read is not None
    assert read.addresses == {"10.1.0.5", "fd00::5", "10.0.0.1"}
