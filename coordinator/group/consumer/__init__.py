"""The consumer group protocol of KIP-848: members heartbeat, and the coordinator assigns."""
