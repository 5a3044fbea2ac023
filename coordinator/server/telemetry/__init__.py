"""How the server reports on itself: log lines, counts, metrics, events."""
