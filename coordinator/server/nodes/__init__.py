"""Which nodes there are, who owns what, and the topics that they lead."""
