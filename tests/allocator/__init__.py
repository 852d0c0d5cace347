"""The compiled allocator against the oracle, and against itself."""
