"""Proposals, accuracy, and what several studies use."""
