"""Bounds that no kernel's machine exceeds, so that nothing is sized by a damaged number."""

NR_CPUS_MAX = 8192
"""CPUs of the largest kernel configuration."""
END_OF_MEMORY = 1 << 31
"""Page frames that the model can number: 8 TiB of 4 KiB pages."""
LARGEST_ORDER = 14
