"""The kernel's own allocator code, compiled from a source tree, as judge of the model."""
