"""One widget for any recording: all policy fields, base and candidate, every table."""

from pagealloc_model.notebook.widgets.explore.widget import RecordingExplorer, explore

__all__ = ["RecordingExplorer", "explore"]
