"""Seats in Kubernetes: frees the seat of a static member whose pod is gone for good, on any Kafka (`tenure seats`).

    pods        reads objects of Kubernetes
    core        decides which seats are free, and in which order they are freed
    groups      asks a group for the member that has a seat, and removes it
    api         speaks with the API server: lists, watches, Events, a lease
    metrics     counts and health over HTTP
    controller  puts all of it together

House rule: only `core` decides that a seat may go.
"""
