"""The allocator: buddy lists, per-CPU lists, fallback, reserve, watermarks, the event loop."""
