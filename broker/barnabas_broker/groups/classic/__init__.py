"""Groups of the classic protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup). Pure.

`group` has the state machine (``ClassicGroup``), `members` its members (``ClassicGroupMember``, ``Members``), `states`
its states (``ClassicGroupState``). Only `groups.effects` and `groups.subscriptions` are imported of the broker;
the coordinator, the events and HTTP import this package.
"""
