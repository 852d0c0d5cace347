"""Events through perf's own Python: its module, live or from files, and the one inside perf."""
