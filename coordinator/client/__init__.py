"""A small synchronous client of a Kafka cluster, for the command line and the demo.

    with Client("127.0.0.1:9092", timeout=5.0) as client:
        for group in list_groups(client):
            print(group.group_id, group.state)

`client` finds nodes, coordinators and versions, and tries again. `groups` sends requests about groups and returns plain
values, `topics` those about topics. `events` reads the events that Tenure keeps, `newest` only the newest of them. The
client works with Tenure and with Apache Kafka 3.0 and later.

House rule: one thread, one request at a time per node, and no wait without a deadline.
"""
