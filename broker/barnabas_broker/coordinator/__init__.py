"""The group coordinator: pure machines (group, membership, offsets), their records, and the shell that runs them."""
