"""The requests of a recording to the allocator, without what the allocator answered."""
