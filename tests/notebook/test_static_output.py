"""What stays of figures in a file."""

from __future__ import annotations

import json
import subprocess
import sys

import plotly.graph_objects as go

from pagealloc_model.notebook.static_output import PLOTLY_MIME, as_output


def test_missing_numbers_are_null_in_what_a_cell_shows() -> None:
    figure = go.Figure(go.Scatter(x=[0, 1], y=[float("nan"), 1.0]))
    assert json.loads(json.dumps(as_output(figure), allow_nan=False))[PLOTLY_MIME]


def test_a_kernel_need_not_import_what_runs_notebooks() -> None:
    code = "import sys, pagealloc_model.notebook.static_output; print('nbformat' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
