"""Odd and damaged requests of all APIs against a broker: see :mod:`tests.fuzz.attack`."""
