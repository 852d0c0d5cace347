"""Experiments: machines that were really run under several settings, beside what was predicted."""
