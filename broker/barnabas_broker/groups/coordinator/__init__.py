"""The shell around the group machines: clock, timers, futures and the log."""
