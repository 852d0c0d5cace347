"""Numbers side by side: of two replays, or measured, predicted and by a null model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from pagealloc_model.numbers.statistics import SHARE, relative, scaled
from pagealloc_model.numbers.values import Quantity, unknown

PREDICTED, PREDICTED_ALONE, IMPOSED = "predicted", "predicted alone", "imposed"
"""Kinds of a row; of the second, no recording of this kind can have the measured side."""


def joined(*sides: Iterable[Quantity]) -> tuple[tuple[Quantity, ...], ...]:
    """Each number of any side; one that a side lacks is 0 there if it counts, else unknown."""
    columns = [{(q.metric, q.scope, q.unit): q for q in side} for side in sides]

    def lacking(row: list[Quantity | None]) -> Quantity:
        other = next(quantity for quantity in row if quantity is not None)
        if other.how in ("count", "sum"):
            return replace(other, time_ns=other.time_ns[:0], values=np.zeros(0))
        return unknown(other)

    keys = dict.fromkeys(key for column in columns for key in column)
    rows = [[column.get(key) for column in columns] for key in keys]
    return tuple(tuple(quantity or lacking(row) for quantity in row) for row in rows)


def distance(values: np.ndarray, reference: np.ndarray) -> float:
    """Mean distance at instants, shape (instants,); of distributions their total variation.

    The distance of means would let errors hide one another.
    """
    off = np.abs(values - reference)
    if off.ndim == 2:
        instants = np.repeat(np.arange(len(off)), off.shape[1])
        sums = pd.Series(off.ravel() / 2).groupby(instants)  # without rounding
        off = sums.sum(min_count=off.shape[1]).to_numpy()
    return float(off.mean())


def at_instants(quantity: Quantity, times: np.ndarray, *, held: bool = False) -> Quantity:
    """The part of a number of states at some instants; `held`: its last value at each of them."""
    if len(quantity.time_ns) < len(quantity.values):  # none dates it
        return quantity
    if held:
        unknown_state = np.full((1, *quantity.values.shape[1:]), np.nan)
        last = quantity.values[-1:] if len(quantity.values) else unknown_state
        return replace(quantity, time_ns=times, values=np.repeat(last, len(times), axis=0))
    chosen = np.isin(quantity.time_ns, times)
    return replace(quantity, time_ns=quantity.time_ns[chosen], values=quantity.values[chosen])


@dataclass(frozen=True, kw_only=True)
class ModelError:
    """One number as measured, as predicted and by a null model: a row of the error table.

    Attributes:
        error: distance of the prediction from what was measured.
        null_error: that of the null model's number.
        whole: what the table's errors are shares of; None where they are relative to `measured`,
            of shares differences, with a sign.
        counted: measured events that `measured` rests on; NaN where it is their number.
        tabled: False for a row that comparisons alone look up.
    """

    metric: str = ""
    scope: str = "all"
    measured: float
    predicted: float
    error: float
    unit: str = ""
    null_model: str
    null: float = float("nan")
    null_error: float
    whole: float | None = None
    counted: float = float("nan")
    kind: str = PREDICTED
    tabled: bool = True

    @staticmethod
    def of(
        metric: str,
        scope: str,
        measured: float,
        predicted: float,
        unit: str,
        null_model: str,
        null: float,
        **more: Any,
    ) -> ModelError:
        """The distances are those of the numbers where they are not given."""
        distances = {"error": abs(predicted - measured), "null_error": abs(null - measured)}
        numbers = {"measured": measured, "predicted": predicted, "null": null}
        words = {"metric": metric, "scope": scope, "unit": unit, "null_model": null_model}
        return ModelError(**(words | numbers | distances | more))

    @staticmethod
    def of_states(
        measured: Quantity, predicted: Quantity, start: Quantity, **more: Any
    ) -> ModelError:
        """Of a number of states at the same instants; the null model keeps that of the start.

        Of means the error is the mean distance, in the table a share of the measured range; of
        distributions it is the prediction.
        """
        unit, values = measured.unit, (measured.value, predicted.value, start.value)
        if measured.how == "mean":
            real, model, still = (side.values for side in (measured, predicted, start))
            off = [distance(side, real) for side in (model, still)]
            ends = np.append(real, still[~np.isnan(still)])
            whole = float(ends.max() - ends.min())
            if real.ndim == 2:
                values, whole = (0.0, *off), 1.0
            else:
                unit = f"{unit}, error in share of range"
            more = {"error": off[0], "null_error": off[1], "whole": whole, **more}
            more["tabled"] = more.get("tabled", True) and whole > 0
        numbers = (*values[:2], unit, measured.null_model, values[2])
        return ModelError.of(measured.metric, measured.scope, *numbers, **more)

    @staticmethod
    def of_zones(zones: Sequence[ModelError]) -> ModelError:
        """Of all zones: numbers are added; the error is the mean of those of zones that moved.

        So a zone counts as much as one in which a hundred times as many pages move.
        """
        names = ("measured", "predicted", "error", "null", "null_error")
        sums = {name: sum(getattr(zone, name) for zone in zones) for name in names}
        moved = [zone for zone in zones if zone.whole]
        whole = zones[0].whole
        if moved:
            whole = float(len(moved))
            for name in ("error", "null_error"):
                sums[name] = sum(getattr(zone, name) / (zone.whole or 1.0) for zone in moved)
        return replace(zones[0], scope="all", tabled=True, whole=whole, **sums)

    @property
    def is_known(self) -> bool:
        """True if both sides are known."""
        return not (np.isnan(self.measured) or np.isnan(self.predicted))

    @property
    def beats_null(self) -> bool:
        """True if the model is nearer than the null model, or right."""
        return self.error < self.null_error or self.error == 0

    def on_scale(self, unit: str) -> float:
        """The distance on the scale of the quantity, of values that go up and down by the mean."""
        above = self.measured + self.error
        above = min(above, 1.0) if unit == SHARE else above
        places = scaled(np.array([self.measured, self.predicted, above]), unit)
        return float(np.abs(places[1:] - places[0]).max())

    def row(self) -> dict[str, object]:
        """The row of the error table."""

        def shown(value: float, off: float) -> float:
            if self.whole is not None:
                return off / self.whole if self.whole else relative(off, self.whole)
            is_share = self.unit == SHARE
            return value - self.measured if is_share else relative(value, self.measured)

        return {
            "metric": self.metric,
            "scope": self.scope,
            "measured": self.measured,
            "predicted": self.predicted,
            "error": shown(self.predicted, self.error),
            "unit": self.unit,
            "null_model": self.null_model,
            "null": self.null,
            "null_error": shown(self.null, self.null_error),
            "kind": self.kind,
            "counted": self.measured if np.isnan(self.counted) else self.counted,
        }
