"""The state that a replay begins with."""
