"""Batched freeing by the pcp lists."""
