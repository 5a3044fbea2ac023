"""The site: pages about groups, JSON over HTTP and its OpenAPI document; the web server under them.

A server and an observer have one, and a test's control has its web server. Every request is a GET and changes nothing.
Metrics are those of the process that has the site. Groups and events come from the whole cluster: a client on a thread
asks for them. So one address shows everything, and a slow reader delays nobody.

House rule: a request to HTTP must not be able to slow a request to a group.
"""
