"""A small API server of Kubernetes in the test's process: objects, their versions, lists in pages, watches.

    async with ApiServer() as server:
        server.put("/api/v1/pods", {...})
        async with connect(server.kubeconfig(tmp_path)) as api: ...

It stands for the real one where a test decides what the server does: tests/kubernetes has the real one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from coordinator.seats.pods import GROUP, INSTANCE_ID, POD_NAME, Object


class ApiServer:
    """See the module.

    objects: by path. requests: method and path of each. refuses: a status for every request, 0 for none. forgotten:
    watches from before this version get 410. is_silent: watches end at once. bookmarks: watches tell of any change.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.refuses = 0
        self.forgotten = 0
        self.is_silent = False
        self.bookmarks = False
        self._version = self._dropped = 0
        self.objects: dict[str, Object] = {}
        self._history: list[tuple[int, str, str, Object]] = []
        self._changed = asyncio.Condition()
        self._port = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[ApiServer]:
        """Serve for a block."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.01)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self._port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await runner.cleanup()

    def kubeconfig(self, folder: Path) -> Path:
        """A file that says where it is."""
        path = folder / "kubeconfig"
        clusters = [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self._port}"}}]
        contexts = [{"name": "c", "context": {"cluster": "c", "user": "u"}}]
        users = [{"name": "u", "user": {"token": "t"}}]
        document = {"clusters": clusters, "contexts": contexts, "users": users, "current-context": "c"}
        path.write_text(json.dumps(document))
        return path

    async def put(self, path: str, found: Object) -> Object:
        """Create or change an object."""
        kind = "MODIFIED" if path in self.objects else "ADDED"
        return await self._change(kind, path, found)

    async def delete(self, path: str, last: Object | None = None) -> None:
        """Delete an object, after its last change."""
        found = self.objects.pop(path)
        await self._change("DELETED", path, last or found)

    async def drop_watches(self) -> None:
        """End all watches that are open."""
        self._dropped += 1
        async with self._changed:
            self._changed.notify_all()

    async def _change(self, kind: str, path: str, found: Object) -> Object:
        async with self._changed:
            self._version += 1
            metadata = {"uid": path, "name": path.rpartition("/")[2], **found.get("metadata", {})}
            found = found | {"metadata": metadata | {"resourceVersion": str(self._version)}}
            if kind != "DELETED":
                self.objects[path] = found
            self._history.append((self._version, kind, path.rpartition("/")[0], found))
            self._changed.notify_all()
        return found

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.path}")
        if self.refuses:
            return _refusal(self.refuses)
        path = request.path
        if request.method == "POST":
            body = await request.json()
            name = body["metadata"].get("name") or f"{body['metadata']['generateName']}{self._version}"
            if f"{path}/{name}" in self.objects:
                return _refusal(409)
            return web.json_response(await self.put(f"{path}/{name}", body))
        if request.method == "PUT":
            body = await request.json()
            if body["metadata"]["resourceVersion"] != self.objects[path]["metadata"]["resourceVersion"]:
                return _refusal(409)
            return web.json_response(await self.put(path, body))
        if path in self.objects:
            return web.json_response(self.objects[path])
        if path.rpartition("/")[2] not in {"pods", "statefulsets", "events", "leases"}:
            return _refusal(404)
        return await self._watch(request) if "watch" in request.query else self._list(request)

    def _list(self, request: web.Request) -> web.Response:
        found = [each for path, each in self.objects.items() if path.rpartition("/")[0] == request.path]
        begin, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        metadata: dict[str, Any] = {"resourceVersion": str(self._version)}
        if len(found) > begin + limit:
            metadata["continue"] = str(begin + limit)
        return web.json_response({"metadata": metadata, "items": found[begin : begin + limit]})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        version = int(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        if version < self.forgotten:
            await response.write(_line("ERROR", {"code": 410, "message": "too old resource version"}))
            return response
        dropped = self._dropped
        while not self.is_silent and dropped == self._dropped:
            async with self._changed:
                news = [each for each in self._history if each[0] > version]
                if not news:
                    await self._changed.wait()
                    continue
            for number, kind, path, found in news:
                version = number
                if path == request.path:
                    await response.write(_line(kind, found))
                elif self.bookmarks:
                    await response.write(_line("BOOKMARK", {"metadata": {"resourceVersion": str(number)}}))
        return response


def _line(kind: str, found: Object) -> bytes:
    return json.dumps({"type": kind, "object": found}).encode() + b"\n"


def _refusal(status: int) -> web.Response:
    return web.json_response({"message": f"refused: {status}"}, status=status)


def a_set(replicas: int) -> Object:
    """A StatefulSet w in the namespace shop."""
    return {"metadata": {"uid": "s", "namespace": "shop", "name": "w"}, "spec": {"replicas": replicas}}


def a_pod(ordinal: int, *, address: str = "127.0.0.1", has_ended: bool = False) -> Object:
    """A pod of that set, with the instance id of its name in the group `orders`."""
    state: Object = {"terminated": {}} if has_ended else {"running": {}}
    return {
        "metadata": {
            "uid": f"u-{ordinal}",
            "namespace": "shop",
            "name": f"w-{ordinal}",
            "annotations": {GROUP: "orders", INSTANCE_ID: POD_NAME},
            "ownerReferences": [{"kind": "StatefulSet", "name": "w", "uid": "s", "controller": True}],
        },
        "spec": {"nodeName": "n", "containers": [{"name": "worker"}]},
        "status": {
            "phase": "Succeeded" if has_ended else "Running",
            "podIP": address,
            "containerStatuses": [{"state": state}],
        },
    }
