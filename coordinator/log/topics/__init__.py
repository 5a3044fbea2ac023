"""Topics that clients create: their list, and the logs of their partitions, with a thread of their own."""
