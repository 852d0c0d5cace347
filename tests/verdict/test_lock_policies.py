"""Two policies at zone->lock as text."""

from __future__ import annotations

import pagealloc_model as pm
from pagealloc_model.show import figures
from pagealloc_model.verdict.locks import lock_policy_rows
from tests.small_recordings import shipped_recording


def test_batches_show_in_the_table_and_the_figure() -> None:
    recording = shipped_recording("xfree")
    base, patch = (
        pm.replay(recording, pm.Policy(pcp_free_batched=batched)).lock_times()
        for batched in (False, True)
    )
    rows = lock_policy_rows(base, patch).set_index(["metric", "scope", "unit"])
    assert rows.loc[("longest hold", "drain commit", "pages"), "base"] > 1000
    assert rows.loc[("longest hold", "drain commit", "pages"), "patch"] == 63
    assert not rows.index.duplicated().any()
    text = pm.locks.lock_policy_table(base, patch, "base: one hold; patch: batches")
    assert all(len(line) <= 72 for line in text.splitlines())
    assert "acquire: 60 ns" in text
    figure = figures.lock_times({"one": base.acquisitions, "two": patch.acquisitions})
    assert len(figure.data) == 8
