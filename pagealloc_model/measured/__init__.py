"""What the recorded kernel did, in the tables that a replay predicts."""
