"""The engine that keeps the groups' records in files of the data folder, with a thread of its own."""
