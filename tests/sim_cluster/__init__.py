"""A seeded simulation of several brokers, their controller and etcd: the real code in virtual time, on a network, disks
and clocks that break."""
