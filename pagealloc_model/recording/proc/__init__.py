"""Parsers of the kernel's own account of its memory: the state files of /proc (T12)."""
