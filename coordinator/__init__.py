"""The coordinator: everything between the wire and the disk."""
