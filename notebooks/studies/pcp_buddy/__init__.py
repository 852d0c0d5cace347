"""Pageblock ownership (pcp_buddy)."""
