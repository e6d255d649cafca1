"""The broker: connections, request handlers, the group coordinator and the segment log."""
