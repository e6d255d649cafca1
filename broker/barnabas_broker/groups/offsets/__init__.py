"""Committed offsets of a group, whatever its protocol (``GroupOffsets``). Pure; the coordinator imports it."""
