"""What everything rests on: errors, progress, the door to numba, arrays, plain-text tables."""
