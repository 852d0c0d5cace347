"""What a recording asked of the allocator, without what the allocator answered."""
