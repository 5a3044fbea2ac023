"""The pure group core: events in, effects out."""
