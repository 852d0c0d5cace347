"""Posted rows beside predicted ones: which are compared, and how they are judged."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from pagealloc_model.notebooks.studies.defrag_mode import defrag_hosts as study

from pagealloc_model.show.post import posted_figures

POSTED = posted_figures("defrag_mode")
STEPS = 15


def made_runs(changes: dict[str, float]) -> pd.DataFrame:
    """Two seeds; 100 of each counter a step, changed by a share on the patched side."""
    rows = [
        {"side": side, "seed": seed, "step": step, "thp_fault_fallback": 50.0}
        | {
            name: 100.0 * (1 + seed) * (1 + changes.get(name, 0.0) * (side == "patch"))
            for name in study.ROWS
        }
        for side in ("base", "patch")
        for seed in (0, 1)
        for step in range(1, STEPS + 1)
    ]
    return pd.DataFrame(rows)


def test_every_row_of_the_post_is_compared_or_left_out_for_a_reason() -> None:
    quantities = set(POSTED["quantity"][~POSTED["quantity"].str.startswith("thp_fault_alloc of")])
    parts = [set(study.ROWS.values()), set(study.FOLLOWING), set(study.NOT_MODELLED)]
    assert set.union(*parts) == quantities
    assert sum(map(len, parts)) == len(quantities)


def test_the_posted_mean_is_that_of_the_posted_runs() -> None:
    posted = POSTED.pivot(index="quantity", columns="variant", values="low")
    runs = posted[posted.index.str.startswith("thp_fault_alloc of run")]
    assert len(runs) == STEPS
    assert np.allclose(runs.mean(), posted.loc["THP fault alloc"], atol=0.01)


def test_rows_are_judged_by_sign_size_and_the_null_model() -> None:
    runs = made_runs({"thp_fault_alloc": 0.2, "allocstall": 0.5, "compact_fail": 0.1})
    runs["compact_success"] = 0.0
    rows = study.judged_rows(runs, POSTED).set_index("quantity")
    assert list(rows.loc["THP fault alloc", ["sign", "size", "beats_null"]]) == [True, True, True]
    assert list(rows.loc["Alloc stall", ["sign", "size", "beats_null"]]) == [True, False, False]
    assert not rows.loc["Direct compact fail", "sign"]
    assert not rows.loc["Pages kswapd scanned", "sign"]
    assert rows.loc["Direct compact success", ["sign", "size", "beats_null"]].isna().all()


def test_an_interval_holds_the_change_and_grows_with_the_spread() -> None:
    base = np.array([10.0, 10.0, 10.0, 10.0])
    low, high = study.relative_interval(base, 1.2 * base)
    assert low == pytest.approx(0.2)
    assert high == pytest.approx(0.2)
    low, high = study.relative_interval(base, np.array([8.0, 11.0, 13.0, 16.0]))
    assert low < 0.2 < high
    assert np.isnan(study.relative_interval(base[:1], base[:1])).all()


def test_shares_and_their_trend() -> None:
    shares = study.served_shares(made_runs({}), POSTED)
    assert shares.loc[1, "base"] == pytest.approx((100 / 150 + 200 / 250) / 2, abs=0.03)
    assert shares.loc[1, "posted_base"] == pytest.approx(61988 / (46727.07 + 21910.60))
    ends = study.trend(shares)
    assert ends["base"] == 0
    assert ends["posted_base"] < -0.2 < ends["posted_patch"]
