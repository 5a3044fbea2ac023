"""Seats in Kubernetes: frees the seat of a static member whose pod is gone for good, on any Kafka (`tenure seats`).

    pods        reads objects of Kubernetes
    core        decides which seats are free, and in which order they are freed
    api         speaks with the API server: lists, watches, Events, a lease
    metrics     counts and health over HTTP
    controller  asks groups for the members that have their seats, and puts all of it together

And names of a pool for programs that have none of their own (`tenure seat run`).

    pool              names, and the table of their holders
    membership        a member of the group that leases names, and until when its name is safe
    supervisor        decides when a program starts, gets a signal and has to be dead
    group_lease       the lease by a group of any Kafka
    kubernetes_lease  the lease by Leases of Kubernetes
    run               processes and signals

House rule: only `core` decides that a seat may go. `pool`, `membership` and `supervisor` are pure too.
"""
