"""What notebooks use: widgets, and runs without a person."""
