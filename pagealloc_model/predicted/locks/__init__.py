"""Queues of CPUs at zone->lock, computed from a replay's holds."""
