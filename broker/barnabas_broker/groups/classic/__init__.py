"""Groups of the classic protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup). Pure.

`group` has the state machine (``ClassicGroup``), `members` its members (``ClassicGroupMember``, ``Members``), `states`
its states (``ClassicGroupState``), `appends` what waits for the log, `record` its record in it, `delay` the initial
rebalance delay. Only `groups.effects` is imported of the broker; the coordinator and
HTTP import this package.
"""
