"""A seeded simulation of the group coordinator with everything around it: brokers, log, network, consumers."""
