"""The history of groups: events, entries, lanes, findings, and every sentence about them. Pure."""
