"""Widgets over replays, and notebooks run without a person; `page/` is what runs in a browser."""

from pathlib import Path


def page_file(name: str) -> str:
    """A script, style sheet or template of `page/`."""
    return (Path(__file__).parent / "page" / name).read_text(encoding="utf-8")
