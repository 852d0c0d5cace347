"""The base of all rooms: errors, progress, the door to numba, arrays, plain-text tables."""
