"""Lag of consumer groups over time: how far each group was behind, where it stalled, and why it rebalanced.

`analysis` reads the internal topics with Spark; `commits`, `rows` and `rebalances` are the pure parts of it; `report`
and `chart` show the result. Imported by the command line.
"""
