"""Recordings to columns: readers of perf.data and perf script text, and the Trace they fill."""
