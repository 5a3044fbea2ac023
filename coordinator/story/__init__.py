"""The history of groups: events, entries, lanes, findings, and every sentence about them. Pure.

The end of a rebalance goes one way, through eight modules, until a page shows it:

    group.notes                 the core's rules make a note of it
    server.runtime.gate         holds the note until its records are durable
    server.nodes.events_topic   gathers notes, and has the topics' thread write them
    story.making                makes an event of the note, and a record of the event
    client.events               reads the record, on any node, by story.events
    site.feed                   keeps the newest events, and passes them to open pages
    story.entries               folds events to entries, each with all that belongs to it
    site.site                   answers with the entries, their words and lanes as JSON, for page_group.js

House rule: nothing that people read about a group is made anywhere else.
"""
