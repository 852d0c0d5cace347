"""Pictures of README and docs show what the program shows (`make screenshots`)."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "site" / "screenshots.py"


@pytest.mark.parametrize("name", ["explore", "highatomic", "locks", "post"])
def test_a_picture_has_the_words_that_are_shown(name: str) -> None:
    pytest.importorskip("playwright")
    described = importlib.util.spec_from_file_location("screenshots", SCRIPT)
    assert described is not None and described.loader is not None
    screenshots = importlib.util.module_from_spec(described)
    described.loader.exec_module(screenshots)
    kept = json.loads(screenshots.WORDS.read_text())
    assert kept[name] == screenshots.words_shown(name), "make screenshots draws it anew"
