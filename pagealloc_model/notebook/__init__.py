"""Widgets of notebooks, and their runs without a person."""
