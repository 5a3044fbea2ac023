"""The nodes, what each owns and leads, and the topics."""
