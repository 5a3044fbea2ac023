"""The facts about seats in objects of Kubernetes: a pod names its seats, a StatefulSet says which ordinals it wants.

A pod names its seats by two annotations, which its set's template has:

    tenure.dev/group: orders                    # the consumer group
    tenure.dev/instance-id: "{pod.name}"        # group.instance.id; several are separated by commas
    tenure.dev/instance-id: GROUP_INSTANCE_ID   # or the environment variable of a container that has it

House rule: an instance id that can't be read is a problem with a text, never a guess.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

GROUP = "tenure.dev/group"
INSTANCE_ID = "tenure.dev/instance-id"
POD_NAME = "{pod.name}"
ENDED = ("Succeeded", "Failed")
"""The phases of a pod that runs no more. Since Kubernetes 1.27 a kubelet sets one before it deletes a pod."""

Object = dict[str, Any]
"""An object of Kubernetes, as its JSON."""


class Seat(NamedTuple):
    """A static member's place in a group."""

    group_id: str
    instance_id: str

    def __str__(self) -> str:
        return f"{self.instance_id} of group {self.group_id}"


class StatefulSet(NamedTuple):
    """A set: it wants the ordinals from `start` on, `replicas` of them.

    is_ending: its deletion has begun. generation: grows with each change of what it wants.
    """

    uid: str
    namespace: str
    name: str
    start: int
    replicas: int
    is_ending: bool
    generation: int = 0

    @property
    def ordinals(self) -> range:
        """The ordinals of the pods that the set wants."""
        return range(self.start, self.start + self.replicas)


class Pod(NamedTuple):
    """A pod with annotations for seats.

    set_uid: of the StatefulSet that owns it; "" for any other pod, whose ordinal is -1.
    seats: those that it names; empty if they can't be read, and then `problem` says why.
    addresses: its own and its node's, from which its programs connect.
    has_node: False for a pod that ran nowhere yet. has_ended: all its containers have, as its kubelet said.
    """

    uid: str
    namespace: str
    name: str
    set_uid: str
    ordinal: int
    seats: tuple[Seat, ...]
    problem: str
    addresses: frozenset[str]
    is_ending: bool
    has_node: bool
    has_ended: bool


def read_set(found: Object) -> StatefulSet:
    """A StatefulSet's facts."""
    metadata, spec = found["metadata"], found["spec"]
    return StatefulSet(
        metadata["uid"],
        metadata["namespace"],
        metadata["name"],
        (spec.get("ordinals") or {}).get("start", 0),
        spec.get("replicas", 1),
        bool(metadata.get("deletionTimestamp")),
        metadata.get("generation", 0),
    )


def read_pod(found: Object) -> Pod | None:
    """A pod's facts; None if it names no seat."""
    metadata, status = found["metadata"], found.get("status") or {}
    annotations = metadata.get("annotations") or {}
    if GROUP not in annotations and INSTANCE_ID not in annotations:
        return None
    set_uid, ordinal = _place(metadata)
    seats: tuple[Seat, ...] = ()
    problem = ""
    try:
        seats = _seats(found, annotations)
    except ValueError as error:
        problem = str(error)
    hosts = [status.get("podIP"), status.get("hostIP")]
    hosts += [each.get("ip") for name in ("podIPs", "hostIPs") for each in status.get(name) or ()]
    return Pod(
        metadata["uid"],
        metadata["namespace"],
        metadata["name"],
        set_uid,
        ordinal,
        seats,
        problem,
        frozenset(host for host in hosts if host),
        bool(metadata.get("deletionTimestamp")),
        bool(found["spec"].get("nodeName")),
        status.get("phase") in ENDED and not _runs(status),
    )


def _place(metadata: Object) -> tuple[str, int]:
    """The uid of the StatefulSet that controls the pod, and the pod's ordinal there."""
    for owner in metadata.get("ownerReferences") or ():
        if owner["kind"] == "StatefulSet" and owner.get("controller"):
            match = re.fullmatch(rf"{re.escape(owner['name'])}-([0-9]+)", metadata["name"])
            if match:
                return owner["uid"], int(match[1])
    return "", -1


def _runs(status: Object) -> bool:
    """Whether a container runs, as far as the kubelet has said. Somebody else may have set the phase."""
    kinds = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    return any("running" in (each.get("state") or {}) for kind in kinds for each in status.get(kind) or ())


def _seats(found: Object, annotations: Object) -> tuple[Seat, ...]:
    """The seats that a pod names. Raises ValueError."""
    for name in (GROUP, INSTANCE_ID):
        if not annotations.get(name):
            raise ValueError(f"it has no annotation {name}")
    names = [each.strip() for each in annotations[INSTANCE_ID].split(",") if each.strip()]
    if not names:
        raise ValueError(f"annotation {INSTANCE_ID} names nothing")
    return tuple(dict.fromkeys(Seat(annotations[GROUP], _instance_id(found, name)) for name in names))


def _instance_id(found: Object, name: str) -> str:
    """The instance id that a name of the annotation stands for. Raises ValueError."""
    if "{" in name:
        instance_id = name.replace(POD_NAME, found["metadata"]["name"])
        if "{" in instance_id:
            raise ValueError(f"{INSTANCE_ID} {name!r}: only {POD_NAME} can be put in")
        return instance_id
    values = set()
    for container in found["spec"].get("containers") or ():
        known: dict[str, str] = {}
        for variable in container.get("env") or ():
            if (value := _value(found, variable, known)) is not None:
                known[variable["name"]] = value
            elif variable["name"] == name:
                raise ValueError(f"variable {name} comes from elsewhere than the pod")
        if name in known:
            values.add(known[name])
    if len(values) != 1:
        raise ValueError(f"{'several values' if values else 'no value'} of variable {name}")
    return values.pop()


def _value(found: Object, variable: Object, known: dict[str, str]) -> str | None:
    """A variable's value, as Kubernetes makes it; None if the pod alone doesn't tell."""
    metadata = found["metadata"]
    if "valueFrom" not in variable:
        text: str = variable.get("value", "")
        if "$$" in text or any(name not in known for name in re.findall(r"\$\(([-.\w]+)\)", text)):
            return None
        return re.sub(r"\$\(([-.\w]+)\)", lambda match: known[match[1]], text)
    path = (variable["valueFrom"].get("fieldRef") or {}).get("fieldPath", "")
    if path in {"metadata.name", "metadata.namespace", "metadata.uid"}:
        return str(metadata[path.removeprefix("metadata.")])
    if match := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
        value = (metadata.get(match[1]) or {}).get(match[2])
        return None if value is None else str(value)
    return None
