"""Pageblock ownership: per-CPU lists that own whole pageblocks."""
