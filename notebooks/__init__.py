"""Notebooks, and the studies that they show."""
