"""Settings of groups (resources of type GROUP): described, changed, and what they change."""

from __future__ import annotations

from protocol.messages import AlterConfigsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest
from tests.oracle.consumer import GROUP, SET, configure, seat, until_members
from tests.oracle.stage import SHORT_MS, Client, Stage, script

THREE = "consumer-3"
DELETE, APPEND = 1, 2
SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def change(
    client: Client, *changes: tuple[str, int, str | None], name: str | None = None, validate_only: bool = False
) -> None:
    """IncrementalAlterConfigs of a group, and the answer."""
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=GROUP, resource_name=client.group if name is None else name, configs=configs
    )
    client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only), 1)


def show(client: Client, *names: str, resource: str | None = None) -> None:
    """DescribeConfigs of a group's consumer settings, and the answer."""
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=GROUP,
        resource_name=client.group if resource is None else resource,
        configuration_keys=list(names),
    )
    client.ask(DescribeConfigsRequest(resources=[asked], include_synonyms=True), 4)


@script("consumer")
def settings_of_a_group_that_is_not_there(stage: Stage) -> None:
    """They need no group, and outlive it."""
    a = seat(stage, "a", topics=[stage.known_topic(THREE, 3)])
    show(a.client, SESSION, INTERVAL)
    configure(stage, heartbeat_interval_ms=4_000)
    show(a.client, SESSION, INTERVAL)
    a.join()
    a.leave()
    a.client.delete_groups()
    show(a.client, INTERVAL)
    a.join()


@script("consumer")
def refused_settings(stage: Stage) -> None:
    """Unknown keys: to unset one is NONE, to set one INVALID_CONFIG; an empty name is INVALID_REQUEST."""
    admin = stage.client("admin")
    change(admin, ("nothing", DELETE, None))
    change(admin, ("nothing", SET, "1"))
    change(admin, (SESSION, SET, "45000"), name="")
    change(admin, (SESSION, SET, "many"))
    change(admin, (SESSION, SET, "-1"))
    change(admin, (SESSION, SET, "60001"))
    change(admin, (SESSION, SET, "5000"))
    change(admin, (SESSION, SET, "4000"))
    change(admin, (INTERVAL, SET, "45000"))
    change(admin, (INTERVAL, SET, "15001"))
    change(admin, (INTERVAL, SET, "0"))
    change(admin, (SESSION, SET, "30000"), (SESSION, SET, "31000"))
    change(admin, (SESSION, APPEND, "30000"))
    change(admin, (SESSION, SET, None))
    change(admin, (SESSION, SET, "50000"), validate_only=True)
    show(admin, SESSION, INTERVAL)
    show(admin, SESSION, resource="")
    show(admin, "nothing")
    change(admin)


@script("consumer")
def changed_and_unset(stage: Stage) -> None:
    """A setting is described with where it comes from; unset, it is the broker's again."""
    admin = stage.client("admin")
    change(admin, (SESSION, SET, "50000"), (INTERVAL, SET, "6000"))
    stage.known_topic(f"fence.{stage.group}", 1)
    show(admin, SESSION, INTERVAL)
    change(admin, (SESSION, DELETE, None))
    stage.known_topic(f"fence2.{stage.group}", 1)
    show(admin, SESSION, INTERVAL)


@script("consumer")
def new_session_timeout_counts_from_the_next_heartbeat(stage: Stage) -> None:
    """The member's session has the former length until it sends a heartbeat."""
    a = seat(stage, "a", topics=[stage.known_topic(THREE, 3)])
    a.join()
    configure(stage, heartbeat_interval_ms=100, session_timeout_ms=stage.timeout_ms(SHORT_MS))
    stage.pass_time(2 * SHORT_MS)
    a.describe()
    a.beat()
    until_members(stage, 0)
    a.beat()
    a.describe()


@script("consumer")
def heartbeat_interval_of_a_group(stage: Stage) -> None:
    """The answer to the next heartbeat has the new interval."""
    a = seat(stage, "a", topics=[stage.known_topic(THREE, 3)])
    a.join()
    configure(stage, heartbeat_interval_ms=3_000)
    a.beat()
    a.join()


@script("consumer")
def whole_settings_can_not_be_replaced(stage: Stage) -> None:
    """The older AlterConfigs, of a group."""
    admin = stage.client("admin")
    resource = AlterConfigsRequest.AlterConfigsResource(
        resource_type=GROUP,
        resource_name=stage.group,
        configs=[AlterConfigsRequest.AlterableConfig(name=SESSION, value="50000")],
    )
    admin.ask(AlterConfigsRequest(resources=[resource]), 2)
    stage.known_topic(f"fence.{stage.group}", 1)
    show(admin, SESSION)
