"""Writes Grafana dashboards and alert rules for Prometheus from the declarations of the metrics."""
