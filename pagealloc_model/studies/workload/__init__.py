"""Synthetic demand: machines, workloads and larger versions of recordings, by seed."""
