"""Makes events of groups (docs/run/events.md) from the records of `__consumer_offsets`, for a cluster that keeps none.

    from coordinator.story.inference.observed import Batch, Observed

    observed = Observed(topic_names)                # one for each partition; topic_names: topic id -> name
    for batch in decode_batches(data):
        header = batch.header
        place = Batch(header.base_offset, header.partition_leader_epoch, header.is_transactional)
        for offset, record in zip(batch.offsets, batch.records):
            if header.is_control:
                observed.passed(offset)             # a marker is no record, but its offset is no gap
                continue
            for event in observed.add(offset, record.timestamp_ms, record.key, record.value, place):
                ...                                 # as a server of ours writes them to __rebalance_events
        for event in observed.end_batch():          # groups of the consumer protocol change at the end of a batch
            ...

An event is of a class of coordinator.story.events, with `"inferred": true` and without `node`. These
types come: rebalance_ended, member_replaced, seat_taken, group_deleted, group_converted, and group_loaded where the log
begins (the history before it is compacted away). Differences to an event that a coordinator told:

    causes              of a kind that the log can't tell: `"kind": "unknown"` with `"possible": [kinds]`
    causes_in_order     false: these causes led to the rebalance, and nobody knows which came first
    preparing_ms        null: the log has the end of the join phase, not its beginning. `began_ms` is that end
    waited_for, late, lapsed    null and empty: only a coordinator knows
    outcome             "superseded" for a generation that left no record, because the next rebalance began before it

More knowledge makes more of it:

    observed.told(Told(...))         a cause that somebody knows, such as a line of the broker's log; before the record
    observed.described(...)          the live members and the state of a group, as DescribeGroups returns them

The modules:

    observed    follows all groups of one partition
    seen        a classic group's record, and the plain differences between two
    signs       signs of life of members: their commits
    classic     the causes of a classic group's next generation
    told        makes the events
    knowledge   what others know: told causes, live members
    broker_lines    told causes from the log of a broker of Apache Kafka

House rule: wrong is worse than unknown. A kind is named only if the records rule out every other one.
"""
