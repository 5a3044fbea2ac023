"""An observer of a Kafka cluster: tells what happens to its groups, and changes nothing there.

    asking      clients of the cluster that share connections, answers, and a budget of requests
    live        asks for the state of groups, those in a rebalance first
    watching    looks at how far groups come
    follower    follows `__consumer_offsets`, and makes events of its records
    broker_log  follows a broker's log file
    published   writes the events to a file or a topic
    webhook     posts findings and rebalances to a URL
    counts      counts events, for metrics
    observer    puts all of it together, with the page of a server (coordinator.site)

House rule: the observed cluster gets reading requests only, but for the topic that the user wants events in.
"""
