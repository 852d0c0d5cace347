"""The explorer's tabs: each draws what its question asks for."""

from __future__ import annotations

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.notebook.explore import RecordingExplorer, explore
from tests.notebook.test_explore import settle
from tests.small_recordings import shipped_recording


@pytest.mark.parametrize("tab", ["pageblocks", "pcp", "locks", "outcomes", "fragmentation"])
def test_every_tab_draws_something(explorer: RecordingExplorer, tab: str) -> None:
    explorer.tabs.value = tab
    settle(explorer)
    assert "error" not in explorer.status.value
    assert len(explorer.charts[tab].figure.data) > 2
    shown = [name for name, chart in explorer.charts.items() if chart.layout.display is None]
    assert shown == [tab]


def test_a_state_read_at_the_end_stands_beside_the_prediction() -> None:
    explorer = explore(shipped_recording("quiet_guest"), tab="pageblocks")
    settle(explorer)
    drawn = {str(trace.meta): trace for trace in explorer.charts["pageblocks"].figure.data}
    assert {"map/before", "map/recorded at the end", "map/base", "map/change"} <= set(drawn)
    assert np.nansum(np.abs(np.array(drawn["map/change"].z, float))) < 200


def test_an_unknown_tab_is_refused(recording: pm.Recording) -> None:
    with pytest.raises(pm.UsageError, match="fragmentation, pageblocks"):
        explore(recording, tab="nonsense")
    with pytest.raises(pm.UsageError, match="auto, literal, elastic"):
        explore(recording, reclaim="lax")
