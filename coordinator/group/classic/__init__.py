"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and what time does to a group."""
