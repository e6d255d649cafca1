"""Group events: what happened to a group, why, and what to do about it."""
