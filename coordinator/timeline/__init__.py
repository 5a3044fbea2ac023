"""What happened to groups: events, entries made of them, lanes, findings, and every sentence about them."""
