"""Figures and messages for mailing lists, made of tables."""
