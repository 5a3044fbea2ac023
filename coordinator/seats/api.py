"""The API server of Kubernetes: objects as JSON, lists that are followed, a lease.

kubernetes-asyncio knows how a server is reached: the service account of a pod, or a kubeconfig with its logins. Its
thousands of classes for objects stay out: an object here is a dictionary, of which little is kept.

`follow` lists objects and then watches them. A watch that ends goes on from the last version that it saw. If the server
has forgotten that version (410 Gone), or says nothing for longer than a bookmark takes, the list is read anew.

House rule: a failure is `ApiError`, with a text for a person, and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from kubernetes_asyncio.client import ApiClient, Configuration
from kubernetes_asyncio.client.exceptions import ApiException
from kubernetes_asyncio.config import load_incluster_config, load_kube_config
from kubernetes_asyncio.config.kube_config import ENV_KUBECONFIG_PATH_SEPARATOR, KUBE_CONFIG_DEFAULT_LOCATION

from coordinator.seats.pods import Object, StatefulSet

REQUEST_S = 10.0
WATCH_S = 150
"""A watch ends after these seconds, and goes on. A bookmark comes every minute, so a healthy one is never silent."""
PAGE = 500
"""Objects of a list in one answer."""
PAUSE_FIRST_S = 0.5
PAUSE_MAX_S = 30.0
OWNER = "tenure.dev/seat-of"
"""The annotation of a Lease for its last holder, over its restarts."""
AWAY_MAX_S = 2.0
"""The longest pause while nobody answers: a pod whose deletion is missed keeps its seat."""
GONE = 410
CONFLICT = 409
NOT_FOUND = 404
COMPONENT = "tenure-seats"

T = TypeVar("T")


class ApiError(Exception):
    """The API server didn't answer, or refused. status: of HTTP; 0 without an answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Api:
    """An API server; see the module."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def get(self, path: str, **query: Any) -> Object:
        """Read an object or a list."""
        return await self._call("GET", path, query)

    async def find(self, path: str) -> Object | None:
        """Read an object as it is at this moment; None if there is none."""
        try:
            return await self._call("GET", path, {})
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    async def create(self, path: str, body: Object) -> Object:
        """Create an object in a collection."""
        return await self._call("POST", path, {}, body)

    async def replace(self, path: str, body: Object) -> Object:
        """Replace an object; 409 if its resourceVersion isn't the newest."""
        return await self._call("PUT", path, {}, body)

    async def list(self, path: str, read: Callable[[Object], T]) -> tuple[list[T], str]:
        """All objects of a collection, as they are read, and the version that a watch goes on from."""
        items: list[T] = []
        query: Object = {"limit": PAGE}
        while True:
            page = await self.get(path, **query)
            items += map(read, page["items"])
            query["continue"] = page["metadata"].get("continue")
            if not query["continue"]:
                return items, page["metadata"]["resourceVersion"]

    async def watch(self, path: str, version: str, opened: Callable[[], None]) -> AsyncIterator[tuple[str, Object]]:
        """The changes of a collection after a version, until the server ends the answer. opened: when it has begun."""
        query = {"watch": 1, "allowWatchBookmarks": "true", "timeoutSeconds": WATCH_S, "resourceVersion": version}
        within = aiohttp.ClientTimeout(connect=REQUEST_S, sock_read=WATCH_S + REQUEST_S)
        async with self._open("GET", path, query, None, within) as response:
            opened()
            async for line in response.content:
                change = json.loads(line)
                if change["type"] == "ERROR":
                    raise ApiError(change["object"].get("code", 0), change["object"].get("message", "watch failed"))
                yield change["type"], change["object"]

    async def _call(self, method: str, path: str, query: Object, body: Object | None = None) -> Object:
        async with self._open(method, path, query, body, aiohttp.ClientTimeout(total=REQUEST_S)) as response:
            answer: Object = json.loads(await response.read())
            return answer

    @asynccontextmanager
    async def _open(
        self, method: str, path: str, query: Object, body: Object | None, within: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            response = await self._client.call_api(
                path,
                method,
                query_params=[(name, value) for name, value in query.items() if value],
                header_params={"Accept": "application/json"},
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=within,
            )
            async with response:
                if response.status >= 400:
                    raise ApiError(response.status, _reason(await response.read()))
                yield response
        except ApiException as error:
            raise ApiError(error.status or 0, str(error.reason)) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:  # TimeoutError is an OSError
            raise ApiError(0, f"{method} {path}: {str(error) or type(error).__name__}") from None


def _reason(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")


@asynccontextmanager
async def connect(kubeconfig: Path | None) -> AsyncIterator[Api]:
    """The API server of a kubeconfig; without one that of the pod that this runs in. Raises ApiError."""
    configuration = Configuration()
    is_pod = kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ
    if kubeconfig is None and not is_pod and not _has_kubeconfig():
        where = KUBE_CONFIG_DEFAULT_LOCATION
        raise ApiError(0, f"this is no pod, and there is no file {where}: --kubeconfig says how to reach Kubernetes")
    try:
        if is_pod:
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            await load_kube_config(config_file=kubeconfig and str(kubeconfig), client_configuration=configuration)
    except Exception as error:  # noqa: BLE001 - the library raises anything for a file that is wrong
        raise ApiError(0, f"the way to Kubernetes is unknown: {error}") from None
    async with ApiClient(configuration) as client:
        yield Api(client)


def _has_kubeconfig() -> bool:
    places = KUBE_CONFIG_DEFAULT_LOCATION.split(ENV_KUBECONFIG_PATH_SEPARATOR)
    return any(Path(each).expanduser().exists() for each in places if each)


async def follow(
    api: Api,
    path: str,
    read: Callable[[Object], T],
    listed: Callable[[list[T]], None],
    happened: Callable[[str, Object], None],
    failed: Callable[[str], None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Follow a collection for ever.

    read: keeps what counts of an object of the list. failed: called with a text when the collection can't be read, and
    with "" when it can.
    """
    pause, version = PAUSE_FIRST_S, ""
    while True:
        try:
            if not version:
                items, version = await api.list(path, read)
                listed(items)
            was_silent = True
            async for kind, found in api.watch(path, version, lambda: failed("")):
                pause, was_silent = PAUSE_FIRST_S, False
                version = found["metadata"]["resourceVersion"]
                if kind != "BOOKMARK":
                    happened(kind, found)
            if was_silent:
                version = ""
            await sleep(PAUSE_FIRST_S)
        except ApiError as error:
            if error.status == GONE and version:
                version = ""
            else:
                failed(str(error))
            await sleep(pause)
            pause = min(2 * pause, PAUSE_MAX_S if error.status else AWAY_MAX_S)


def _now() -> str:
    """The time as Kubernetes writes it, with microseconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def lease_path(namespace: str) -> str:
    """The path of the Leases of a namespace."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


class Lease:
    """A lease of Kubernetes. Its holder acts; the others wait until it wasn't renewed for its duration.

    A holder counts its own time from before it sent the renewal, so it ends its work before another one begins.
    api: the connection. owner: the holder over its restarts, which the Lease keeps when it is given back. until: when
    it ends, on `clock`. token: grows with each holder. is_lost: whether another one took it.
    """

    def __init__(
        self, api: Api, namespace: str, name: str, identity: str, clock: Callable[[], float], owner: str = ""
    ) -> None:
        self.api = api
        self._path = lease_path(namespace)
        self._name = name
        self._identity = identity
        self._owner = owner
        self._clock = clock
        self._seen = ("", "", 0.0)
        """The holder and its renewal, and when they were first seen: clocks of other machines don't count."""
        self._lasts_s: int | None = None
        self.until = 0.0
        self.token = 0
        self.is_lost = False

    @property
    def is_held(self) -> bool:
        """Whether this one holds it."""
        return self._clock() < self.until

    def sees(self, found: Object | None) -> str:
        """Take the lease as it is, None if there is none; returns its last owner, or ""."""
        spec = (found or {}).get("spec") or {}
        holder, renewed = spec.get("holderIdentity") or "", spec.get("renewTime") or ""
        if (holder, renewed) != self._seen[:2]:
            self._seen = holder, renewed, self._clock()
        self._lasts_s = spec.get("leaseDurationSeconds")
        self.token = spec.get("leaseTransitions") or 0
        owner: str = (((found or {}).get("metadata") or {}).get("annotations") or {}).get(OWNER, "")
        return owner

    def is_free(self, duration_s: int) -> bool:
        """Whether no other one holds it, as it was last seen."""
        holder, _, since = self._seen
        return holder in {"", self._identity} or self._clock() >= since + (self._lasts_s or duration_s)

    async def renew(self, duration_s: int) -> None:
        """Take the lease or renew it, if it isn't another one's. Raises ApiError."""
        began = self._clock()
        found = await self.api.find(f"{self._path}/{self._name}")
        was_held = self.is_held
        self.sees(found)
        if not self.is_free(duration_s) or (was_held and self._seen[0] != self._identity):
            self.until, self.is_lost = 0.0, was_held
            return
        spec = {} if found is None else found.get("spec") or {}
        is_mine = self._seen[0] == self._identity
        now = _now()
        mine: Object = {"holderIdentity": self._identity, "leaseDurationSeconds": duration_s, "renewTime": now}
        mine["acquireTime"] = spec.get("acquireTime", now) if is_mine else now
        mine["leaseTransitions"] = transitions = self.token + (not is_mine)
        metadata: Object = {"name": self._name} if found is None else found["metadata"]
        if self._owner:
            metadata = {**metadata, "annotations": {**(metadata.get("annotations") or {}), OWNER: self._owner}}
        kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        body = {**kind, **(found or {}), "metadata": metadata, "spec": mine}
        try:
            if found is None:
                await self.api.create(self._path, body)
            else:
                await self.api.replace(f"{self._path}/{self._name}", body)
        except ApiError as error:
            if error.status == CONFLICT:  # another one was faster
                self.until, self.is_lost = 0.0, was_held
                return
            raise
        self.until, self.token = began + duration_s, transitions

    async def release(self) -> None:
        """Give the lease back, so that another one need not wait. Raises ApiError."""
        found = await self.api.find(f"{self._path}/{self._name}")
        if self.is_held and found is not None and found["spec"].get("holderIdentity") == self._identity:
            self.until = 0.0
            await self.api.replace(
                f"{self._path}/{self._name}", {**found, "spec": {**found["spec"], "holderIdentity": ""}}
            )


def event_of(found: StatefulSet, reason: str, text: str, identity: str, *, is_warning: bool) -> tuple[str, Object]:
    """The path and the body of an Event about a StatefulSet."""
    now = _now()
    path = f"/apis/events.k8s.io/v1/namespaces/{found.namespace}/events"
    return path, {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": f"{found.name}-", "namespace": found.namespace},
        "eventTime": now,
        "reportingController": COMPONENT,
        "reportingInstance": identity,
        "action": "FreeSeat",
        "reason": reason,
        "note": text,
        "type": "Warning" if is_warning else "Normal",
        "regarding": {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "namespace": found.namespace,
            "name": found.name,
            "uid": found.uid,
        },
    }
