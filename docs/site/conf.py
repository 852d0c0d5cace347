"""Settings of the site; `build_site.py` gathers the pages that Sphinx reads."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "pagealloc_model"
author = "pagealloc_model developers"
copyright = author
extensions = ["citations", "myst_nb"]
root_doc = "index"
html_theme = "furo"
html_title = "pagealloc_model"
html_copy_source = False
nb_execution_mode = "off"
"""The tests execute the notebooks; here they are shown as committed, without outputs."""
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
nitpicky = True
smartquotes = False
