"""How often predicted changes were right, and whether they have the right size: one function each.

Commands, README and pages print what these count.
"""

from __future__ import annotations

import pandas as pd

from pagealloc_model.numbers import statistics

MODES = LITERAL, ELASTIC = "literal", "elastic"
NULL = "no change"
LARGE = 2.0
"""Half-widths of its interval above which a measured change is large: such rows pass for effects
by chance once in thousands."""
RIGHT_SIZE = 0.8, 1.25
"""Slopes of measured on predicted changes that pass for the right size."""
FEWEST = 8
"""Rows below which a quantity's slope is not counted."""


def each_pair_once(changes: pd.DataFrame) -> pd.DataFrame:
    """Rows of changes without those of a pair whose other direction came before.

    A plan can predict each of two sides from the other; both have the same measured change.
    """

    def sides_of_title(pair: str, axis: str) -> str:
        letters, values = pair.split(": ", 1)
        own = values.removeprefix(f"{axis} ").split(" -> ")
        return " ".join(sorted(map(" ".join, zip(letters.split(" -> "), own, strict=False))))

    changes = changes.reset_index(drop=True)
    titles = map(sides_of_title, changes["pair"], changes["axis"])
    sides = pd.Series(titles, index=changes.index, dtype=str)
    first = changes["pair"].groupby([sides, changes["axis"]]).transform("first")
    return changes[changes["pair"] == first]


def slope_table(changes: pd.DataFrame) -> pd.DataFrame:
    """Size of measured changes by that of predicted ones, over all rows, effects or not.

    A row is selected by nothing that was measured of it, so that 1 is the right size. Changes are
    counted in half-widths of the measured change's 95 % interval, and the line goes through 0: what
    is predicted not to change is held to not change. The slope's own interval allows for rows that
    scatter unequally.

    Args:
        changes: of elastic replays and others, as `changes_table` has them; of elastic ones each
            pair counts once.

    Returns:
        metric, rows, slope, low and high, and hold: rows whose measured interval holds the
        prediction; heaviest: the setting with the most weight in the slope, weight: its share, and
        without: the slope without its rows. A row weighs by the square of its prediction in
        half-widths. Metrics with fewer than two rows, or with no predicted change, have no slope.
    """
    changes = each_pair_once(changes[changes["mode"] == ELASTIC]).reset_index(drop=True)
    half = (changes["high"] - changes["low"]) / 2
    known = changes[changes["predicted"].notna() & (half > 0)]
    half = half[known.index]
    rows = []
    for metric, own in known.groupby("metric", sort=False):
        predicted, measured = own["predicted"] / half[own.index], own["change"] / half[own.index]
        weight, product = predicted**2, predicted * measured
        square, slope, reach = float(weight.sum()), float("nan"), float("nan")
        by_setting = weight.groupby(own["axis"]).sum()
        heaviest = by_setting.idxmax()
        others = own["axis"] != heaviest
        rest = float(weight[others].sum())
        if len(own) > 1 and square > 0:
            slope = float(product.sum()) / square
            left = float((weight * (measured - slope * predicted) ** 2).sum())
            variance = left / square**2 * len(own) / (len(own) - 1)
            reach = statistics.widths(len(own) - 1) * variance**0.5
        rows.append(
            {
                "metric": metric,
                "rows": len(own),
                "slope": slope,
                "low": slope - reach,
                "high": slope + reach,
                "hold": int(own["inside"].sum()),
                "heaviest": heaviest,
                "weight": float(by_setting[heaviest]) / square if square > 0 else float("nan"),
                "without": float(product[others].sum()) / rest if rest > 0 else float("nan"),
            }
        )
    columns = ["metric", "rows", "slope", "low", "high", "hold", "heaviest", "weight", "without"]
    return pd.DataFrame(rows, columns=columns)


def score_table(changes: pd.DataFrame) -> pd.DataFrame:
    """Predictions that were right, by mode of reclaim, beside the model that nothing changes.

    Each pair counts once.

    Returns:
        model; measurable: quantities of pairs with a measurable effect; predicted, right, wrong and
        not_predicted among them; large, large_predicted, large_direction: effects beyond `LARGE`
        half-widths, and of these the predictions within the interval and in the right direction;
        quiet: quantities without an effect, predicted or not; quiet_inside: of these, predictions
        within the interval; quiet_not_predicted: those without a prediction; judged: rows with an
        interval, effects or not; hold: of these, those whose measured interval holds the
        prediction; sized, right_size: quantities with a slope of at least `FEWEST` rows, and those
        with one in `RIGHT_SIZE`, of elastic replays.
    """
    changes = each_pair_once(changes)
    null = changes[changes["mode"] == LITERAL].assign(predicted=0.0)
    null["verdict"] = [statistics.verdict(0.0, row.low, row.high) for row in null.itertuples()]
    null["inside"] = (null["low"] <= 0) & (null["high"] >= 0)
    known = [mode for mode in MODES if (changes["mode"] == mode).any()]
    models = {mode: changes[changes["mode"] == mode] for mode in known} | {NULL: null}
    counted = (statistics.WITHIN, statistics.RIGHT, statistics.WRONG, statistics.NOT_PREDICTED)
    scores = []
    for model, rows in models.items():
        counts = [int((rows["verdict"] == own).sum()) for own in counted]
        quiet = rows["verdict"] == statistics.NO_EFFECT
        is_effect = rows["verdict"].isin(statistics.EFFECTS)
        middle = (rows["low"] + rows["high"]).abs() / 2
        large = rows[is_effect & (middle > LARGE * (rows["high"] - rows["low"]) / 2)]["verdict"]
        sizes = pd.Series(dtype=float)
        if model == ELASTIC:
            slopes = slope_table(rows)
            sizes = slopes.loc[slopes["rows"] >= FEWEST, "slope"].dropna()
        scores.append(
            {
                "model": model,
                "measurable": int(is_effect.sum()),
                **dict(zip(("predicted", "right", "wrong", "not_predicted"), counts, strict=True)),
                "large": len(large),
                "large_predicted": int((large == statistics.WITHIN).sum()),
                "large_direction": int(large.isin((statistics.WITHIN, statistics.RIGHT)).sum()),
                "quiet": int(quiet.sum()),
                "quiet_inside": int((rows["inside"] & quiet).sum()),
                "quiet_not_predicted": int((quiet & rows["predicted"].isna()).sum()),
                "judged": int(rows["low"].notna().sum()),
                "hold": int((rows["inside"] & rows["predicted"].notna()).sum()),
                "sized": len(sizes),
                "right_size": int(sizes.between(*RIGHT_SIZE).sum()),
            }
        )
    return pd.DataFrame(scores)
