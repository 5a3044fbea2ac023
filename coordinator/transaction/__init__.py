"""The transaction coordinator: events in, effects out. Pure, as `coordinator.group`."""
