"""Notebooks run without a person: executed copy, offline page, figures as files, post text."""
