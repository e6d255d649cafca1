"""The broker over HTTP, for looking only: metrics for Prometheus, groups and health as JSON."""
