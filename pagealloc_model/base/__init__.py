"""What everything rests on: errors, progress, the door to numba, working arrays, plain-text tables."""
