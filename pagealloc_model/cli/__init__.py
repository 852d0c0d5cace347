"""The `pagealloc` command; each subcommand is a module with `add_parser` and `run`."""

from pagealloc_model.cli.main import main

__all__ = ["main"]
