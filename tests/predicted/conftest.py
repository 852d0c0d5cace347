"""A small recording, and one of a kernel that reclaimed."""

from __future__ import annotations

import pytest

import pagealloc_model as pm
from tests.small_recordings import shipped_recording, write_recording


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> pm.Recording:
    return pm.open(write_recording(tmp_path_factory.mktemp("recordings") / "small"))


@pytest.fixture(scope="module")
def stock() -> pm.Recording:
    return shipped_recording("highatomic_stock")
