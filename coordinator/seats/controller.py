"""The controller: follows sets and pods, lets the core decide, and carries out what it says.

    async with connect(kubeconfig) as api:
        await Controller(api, cluster, Options(...), say).run()

One loop follows the API server. Requests to Kafka wait for their answers in one thread of their own, so that a cluster
that is away holds nothing up. Seats of a group that wait for that thread share a request. Only the holder of the lease
acts; the others follow too, and know what ended.

House rule: what is sent to a group or to the API server comes from an action of the core.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from coordinator.client.client import Client, Cluster
from coordinator.client.errors import ClientError, Refused, Unauthenticated
from coordinator.client.groups import describe_groups, is_unknown, remove_seats
from coordinator.seats.api import Api, ApiError, Lease, connect, event_of, follow
from coordinator.seats.core import (
    Action,
    Ask,
    Asked,
    Confirm,
    Confirmed,
    Event,
    Holder,
    Kind,
    Leads,
    Leave,
    Left,
    PodGone,
    PodLost,
    PodSeen,
    PodsListed,
    Seats,
    SetGone,
    SetSeen,
    SetsListed,
    Tell,
    Tick,
)
from coordinator.seats.metrics import Metrics, serving
from coordinator.seats.pods import Object, Pod, read_pod, read_set
from protocol.errors import ProtocolError

if TYPE_CHECKING:
    import socket

LEASE_S, RENEW_S = 15, 5
"""A lease lasts so long without a renewal, and is renewed so often. A holder that is lost delays others by LEASE_S."""
END_WITHIN_S = 5.0
"""A stop waits so long for requests under way, and for Events about them."""

REASONS = {Kind.FREE: "SeatIsFree", Kind.FREED: "SeatFreed", Kind.DOUBT: "SeatKept"}
"""The verdicts that a set gets an Event about."""


class Options(NamedTuple):
    """The options of a controller.

    namespace: the one that it follows; "" for all. frees, any_host: as of Seats. timeout: seconds that Kafka has for an
    answer. identity: its name, one for each process. lease: the namespace and the name of its lease.
    """

    namespace: str
    identity: str
    lease: tuple[str, str]
    timeout: float
    frees: bool
    any_host: bool


class Controller:
    """See the module. say: prints a line. known: set once all sets and pods have been read."""

    def __init__(self, api: Api, cluster: Cluster, options: Options, say: Callable[[str], None]) -> None:
        self._api = api
        self._options = options
        self._say = say
        self._core = Seats(frees=options.frees, any_host=options.any_host)
        self._client = cluster.client(options.timeout)
        self._thread = ThreadPoolExecutor(1, "kafka")
        self._turn = asyncio.Lock()
        """Held while the thread asks the cluster."""
        self._waiting: dict[tuple[object, ...], dict[str, Ask | Leave]] = {}
        """The requests that wait for the thread: by kind and group, then by instance id."""
        self.lease = Lease(api, *options.lease, options.identity, time.monotonic)
        self.metrics = Metrics()
        self.known = asyncio.Event()
        self._woken = asyncio.Event()
        self._doing: set[asyncio.Task[None]] = set()
        self._problems: dict[str, str] = {}

    @property
    def not_ready(self) -> str:
        """Why it doesn't know all sets and pods; "" if it does."""
        problems = [text for text in self._problems.values() if text]
        return problems[0] if problems else "" if self._core.is_ready else "sets and pods are being read"

    async def run(self) -> None:
        """Work until the task is cancelled; then finish what is under way, and give the lease back.

        Raises Unauthenticated if the cluster refuses the login of the first connection.
        """
        where = f"/namespaces/{self._options.namespace}" if self._options.namespace else ""
        sets, pods = f"/apis/apps/v1{where}/statefulsets", f"/api/v1{where}/pods"
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(
                    follow(self._api, sets, read_set, self._sets_listed, self._set_happened, self._trouble("sets"))
                )
                tasks.create_task(
                    follow(self._api, pods, read_pod, self._pods_listed, self._pod_happened, self._trouble("pods"))
                )
                tasks.create_task(self._log_in())
                tasks.create_task(self._lead())
                tasks.create_task(self._tick())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        finally:
            self._handle(Leads(does=False))
            with suppress(TimeoutError):
                async with asyncio.timeout(END_WITHIN_S):
                    while self._doing:  # an answer may have its Event written
                        await asyncio.wait(self._doing)
            with suppress(ApiError):
                await self.lease.release()
            self._thread.shutdown(cancel_futures=True)
            self._client.close()

    # ---- What happens.

    def _handle(self, event: Event) -> None:
        for action in self._core.handle(event, time.monotonic()):
            task = asyncio.create_task(self._do(action))
            self._doing.add(task)
            task.add_done_callback(self._over)
        self.metrics.pods.set(self._core.pods)
        self._woken.set()
        if self._core.is_ready:
            self.known.set()

    def _over(self, task: asyncio.Task[None]) -> None:
        self._doing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._say(f"a fault of this program: {error!r}")

    def _sets_listed(self, found: list[Any]) -> None:
        self._handle(SetsListed(tuple(found)))

    def _set_happened(self, kind: str, found: Object) -> None:
        self._handle(SetGone(found["metadata"]["uid"]) if kind == "DELETED" else SetSeen(read_set(found)))

    def _pods_listed(self, found: list[Pod | None]) -> None:
        self._handle(PodsListed(tuple(pod for pod in found if pod is not None)))

    def _pod_happened(self, kind: str, found: Object) -> None:
        pod = read_pod(found)
        if pod is None:
            self._handle(PodLost(found["metadata"]["uid"]))
        else:
            self._handle(PodGone(pod) if kind == "DELETED" else PodSeen(pod))

    def _trouble(self, name: str) -> Callable[[str], None]:
        """A function that takes the trouble with a part, "" for none, and says when it begins and when it ends."""

        def take(text: str) -> None:
            if bool(text) != bool(self._problems.get(name)):
                self._say(f"{name}: trying again: {text}" if text else f"{name}: it works again")
            self._problems[name] = text

        return take

    async def _log_in(self) -> None:
        """Speak with the cluster once, so that a wrong password shows before a seat depends on it."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._client.nodes)
        except Unauthenticated:
            raise
        except (ClientError, ProtocolError) as error:
            self._say(f"kafka: {error}")

    async def _lead(self) -> None:
        """Renew the lease, and tell the core whether this one holds it."""
        took, trouble = False, self._trouble("lease")
        while True:
            try:
                await self.lease.renew(LEASE_S)
                trouble("")
            except ApiError as error:
                trouble(str(error))
            if self.lease.is_held != took:
                took = self.lease.is_held
                self._say("has the lease, and acts" if took else "lost the lease")
                self.metrics.leads.set(took)
                self._handle(Leads(took))
            await asyncio.sleep(RENEW_S)

    async def _tick(self) -> None:
        while True:
            self._woken.clear()
            at = self._core.next_at
            try:
                async with asyncio.timeout(None if at is None else max(at - time.monotonic(), 0)):
                    await self._woken.wait()
            except TimeoutError:
                self._handle(Tick())

    # ---- What the core wants.

    async def _do(self, action: Action) -> None:
        match action:
            case Ask() | Leave():
                await self._send(action)
            case Confirm():
                self._handle(await self._confirm(action))
            case Tell():
                await self._tell(action)

    async def _send(self, action: Ask | Leave) -> None:
        """Send a request to a group when the thread is free, with all others of that kind that wait for this group."""
        seat = action.step.seat
        key: tuple[object, ...] = type(action), seat.group_id
        if seat.instance_id in self._waiting.get(key, ()):  # a request names a seat once
            key = (*key, action.step)
        waiting = self._waiting.setdefault(key, {})
        waiting[seat.instance_id] = action
        if len(waiting) > 1:
            return  # the first one takes it along
        async with self._turn:
            await asyncio.sleep(0)  # the actions of one event begin one after the other
            del self._waiting[key]
            answers, problem = await self._of_kafka(lambda: self._request(seat.group_id, waiting))
        for name, each in waiting.items():
            if isinstance(each, Ask):
                self._handle(Asked(each.step, None if problem else answers.get(name), problem))
            else:
                self._handle(Left(each.step, 0 if problem else answers[name], problem))

    def _request(self, group_id: str, waiting: dict[str, Ask | Leave]) -> Any:
        member_ids = {name: each.member_id for name, each in waiting.items() if isinstance(each, Leave)}
        if not member_ids:
            return holders(self._client, group_id)
        if not self.lease.is_held:
            raise ClientError("the lease ended before the request")
        return remove_seats(self._client, group_id, member_ids)

    async def _of_kafka(self, ask: Callable[[], Any]) -> tuple[Any, str]:
        """An answer of Kafka, or why there is none."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, ask), ""
        except (ClientError, ProtocolError) as error:
            return None, str(error)

    async def _confirm(self, action: Confirm) -> Confirmed:
        try:
            found = await self._api.find(f"/apis/apps/v1/namespaces/{action.namespace}/statefulsets/{action.set_name}")
            pod = await self._api.find(f"/api/v1/namespaces/{action.namespace}/pods/{action.pod_name}")
        except ApiError as error:
            return Confirmed(action.step, None, pod_exists=False, problem=str(error))
        return Confirmed(action.step, None if found is None else read_set(found), pod_exists=pod is not None)

    async def _tell(self, action: Tell) -> None:
        kind, why = action.verdict
        about = f"pod {action.pod.name}" if action.seat is None else str(action.seat)
        within = f" after {action.waited_s:.2f} s" if kind is Kind.FREED else ""
        self._say(f"{kind.value} {about} (pod {action.pod.namespace}/{action.pod.name}){within}: {why}")
        self.metrics.count(kind, action.waited_s)
        if action.set is None or kind not in REASONS:
            return
        text = f"{kind.value} {about}: {why}"
        event = event_of(action.set, REASONS[kind], text, self._options.identity, is_warning=kind is Kind.DOUBT)
        try:
            await self._api.create(*event)
        except ApiError as error:
            self._say(f"no Event about StatefulSet {action.set.name}: {error}")


def holders(client: Client, group_id: str) -> dict[str, Holder]:
    """The static members of a group, by instance id; none if there is no such group. Raises as the client does.

    A removal names a member's id. Without it, a member that came back would go.
    """
    group = describe_groups(client, [group_id])[group_id]
    if isinstance(group, Refused):
        if is_unknown(group):
            return {}
        raise group
    return {
        member.group_instance_id: Holder(member.member_id, _address(member.client_host))
        for member in group.members
        if member.group_instance_id is not None
    }


def _address(host: str) -> str:
    """A member's host, which Kafka writes as "/10.1.2.3", in the form that Kubernetes has."""
    text = host.rpartition("/")[2]
    try:
        address = ip_address(text)
    except ValueError:
        return text
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def run(
    cluster: Cluster,
    kubeconfig: Path | None,
    options: Options,
    listening: socket.socket | None,
    say: Callable[[str], None],
    on_ready: Callable[[str], None],
) -> None:
    """Work until SIGTERM or SIGINT. Raises ApiError if the way to Kubernetes is unknown, and as Controller.run does.

    listening: for HTTP. on_ready: called with the address of HTTP, or "", when all sets and pods have been read.
    """

    async def work_until_ended() -> None:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        async with AsyncExitStack() as stack:
            controller = Controller(await stack.enter_async_context(connect(kubeconfig)), cluster, options, say)
            at = ""
            if listening is not None:
                await stack.enter_async_context(serving(listening, controller.metrics, lambda: controller.not_ready))
                at = "{}:{}".format(*listening.getsockname()[:2])
            work, ending = loop.create_task(controller.run()), loop.create_task(ended.wait())
            known = loop.create_task(controller.known.wait())
            await asyncio.wait((work, ending, known), return_when=asyncio.FIRST_COMPLETED)
            if known.done():
                on_ready(at)
            await asyncio.wait((work, ending), return_when=asyncio.FIRST_COMPLETED)
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work  # if it ended by a fault, this raises it

    asyncio.run(work_until_ended())
