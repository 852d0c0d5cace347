"""Where tables that come with the project lie."""

from __future__ import annotations

from pathlib import Path

import pagealloc_model as pm
from pagealloc_model.studies.study import shipped_recordings_directory


def shipped_data(holds: str) -> Path:
    """The folder data/, which would hold something; a UsageError where it was left out."""
    data = shipped_recordings_directory()
    if data is None:
        raise pm.UsageError(f"data/ was left out of this copy; it would hold {holds}")
    return data
