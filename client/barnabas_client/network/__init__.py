"""Connections to brokers, cluster metadata, versions, back-off."""
