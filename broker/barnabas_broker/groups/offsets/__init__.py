"""Committed offsets: a pure machine."""
