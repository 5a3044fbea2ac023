"""`make demo`: a rolling restart of five consumers, once as static members and once as dynamic ones.

`command` is the command; `roll` the story and its figures; `processes` the coordinator and the consumers, each a
process of its own; `consumer` what such a consumer runs; `server_log` what the coordinator says happened; `display`
what a person sees.

House rule: every figure is read from the server, from its log or its answers, never from what the story expects.
"""
