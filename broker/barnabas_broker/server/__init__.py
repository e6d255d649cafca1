"""Listeners and connections: bytes in, request frames to the dispatcher, responses out in order."""
