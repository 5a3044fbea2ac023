"""The metadata log: the interface of its engines, and the engine that keeps it in files."""
