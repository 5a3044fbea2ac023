"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and the timers of a group."""
