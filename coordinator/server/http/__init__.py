"""The HTTP side: metrics, health, groups, events, and the page that shows them.

Nothing here is imported unless `--http` is given, and nothing here changes anything: every request is a GET. Metrics
are those of this process (`measures`). Groups and events are asked for over the wire like any other client's
(`coordinator.client`), on threads, so that one address shows the whole cluster, and a slow reader holds up nobody.

House rule: a request to HTTP must not be able to slow a request to a group.
"""
