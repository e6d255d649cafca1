"""A seeded simulation of several brokers, their controller and etcd: the real code in virtual time, with faults of the
network, the disks and the clocks."""
