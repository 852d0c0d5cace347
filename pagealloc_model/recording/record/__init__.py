"""Making a recording of this machine: perf, snapshots of /proc, and what is known about it."""
