"""What the server says of itself: log lines, counts, metrics, events."""
