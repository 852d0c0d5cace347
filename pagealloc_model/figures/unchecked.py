"""Plotly figures made without plotly's check of every property."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go


def unchecked(traces: Sequence[dict[str, Any]], layout: dict[str, Any]) -> go.Figure:
    """A figure of properties known to be right; what is set on it later is checked again.

    Checking takes longer than the replay whose result is drawn. Tests check every figure.

    Args:
        traces: as plotly's own keys and values.
        layout: the same.
    """
    figure = go.Figure({"data": list(traces), "layout": layout}, _validate=False)
    for part in (figure, figure.layout, *figure.data):
        part._validate = True
    return figure
