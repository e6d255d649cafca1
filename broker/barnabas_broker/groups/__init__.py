"""Group coordination: pure machines, the events they cause, and the shell around them."""
