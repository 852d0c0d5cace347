"""The explorer of a small recording."""

from __future__ import annotations

import pytest

import pagealloc_model as pm
from pagealloc_model.notebook.explore import RecordingExplorer, explore
from tests.small_recordings import write_recording


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> pm.Recording:
    return pm.open(write_recording(tmp_path_factory.mktemp("explored") / "small"))


@pytest.fixture(scope="module")
def explorer(recording: pm.Recording) -> RecordingExplorer:
    return explore(recording)
