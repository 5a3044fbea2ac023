"""The handlers: one function per API that asks the runtime, the topics or the records, and answers."""
