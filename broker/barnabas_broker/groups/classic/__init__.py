"""Groups of the classic protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup). Pure.

`group` has the state machine (``ClassicGroup``), `members` its members (``ClassicGroupMember``, ``Members``), `states`
its states (``ClassicGroupState``). Only `groups.effects` is imported of the broker; the coordinator and
HTTP import this package.
"""
