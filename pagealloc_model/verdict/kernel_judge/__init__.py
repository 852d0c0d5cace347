"""The model held against the kernel's own code."""
