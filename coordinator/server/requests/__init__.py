"""The handlers: one function per API, which asks the runtime, the topics or the records, and answers."""
