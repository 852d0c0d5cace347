"""Recordings, experiments and tables that come with the package."""
