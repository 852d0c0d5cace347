"""defrag_mode."""
