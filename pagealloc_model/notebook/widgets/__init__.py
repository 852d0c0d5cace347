"""Interactive views for notebooks: sliders made from `Policy`, figures that change in place."""

from pagealloc_model.notebook.controls import PolicyControls
from pagealloc_model.notebook.view import Explorer, View
from pagealloc_model.notebook.widgets.defrag_mode import defrag_mode
from pagealloc_model.notebook.widgets.highatomic import highatomic
from pagealloc_model.notebook.widgets.pcp_batching import pcp_batching
from pagealloc_model.notebook.widgets.pcp_buddy import pcp_buddy
from pagealloc_model.notebook.widgets.start_here import start_here

__all__ = [
    "Explorer",
    "PolicyControls",
    "View",
    "defrag_mode",
    "highatomic",
    "pcp_batching",
    "pcp_buddy",
    "start_here",
]
