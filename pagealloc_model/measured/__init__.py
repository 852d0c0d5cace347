"""The recorded kernel's doings, in the tables that a replay predicts."""
