"""From bytes to requests and back: listeners, connections, dispatch, and what repeats."""
