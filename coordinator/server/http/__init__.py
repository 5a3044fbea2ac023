"""The HTTP side: metrics, health, groups, events, and the page that shows them.

The server imports this package only for `--http`. Every request is a GET and changes nothing. Metrics are those of this
process (`measures`). Groups and events come from the whole cluster: a client on a thread asks this node in process and
other nodes over sockets (in_process.py). So one address shows everything, and a slow reader delays nobody.

House rule: a request to HTTP must not be able to slow a request to a group.
"""
