"""Predictions held against recordings, and policies against one another."""
