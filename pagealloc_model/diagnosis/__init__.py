"""Leaf: choices judged alone, the error budget, the first departure from the kernel."""
