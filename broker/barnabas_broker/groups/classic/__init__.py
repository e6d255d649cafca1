"""A group of the classic protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup): a pure state machine."""
