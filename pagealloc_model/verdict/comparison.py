"""Two policies over the same demand: base, patch, and the change between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from pagealloc_model.base.carried_out import CarriedOut
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.text.comparison_table import Style, comparison_table
from pagealloc_model.base.text.footer import Footer
from pagealloc_model.base.version import __version__
from pagealloc_model.policy.policy import Assumptions, policy_settings
from pagealloc_model.policy.policy_fields import Setting
from pagealloc_model.predicted.replay import Replay
from pagealloc_model.predicted.tables import LITERAL
from pagealloc_model.recording.provenance_check import LEVELS, USABLE, ProvenanceCheck
from pagealloc_model.verdict.judged_rows import believable_words, judged_rows
from pagealloc_model.verdict.model_errors import ModelErrors, model_errors
from pagealloc_model.verdict.pressure_metrics import MMTESTS
from pagealloc_model.verdict.quantity import Quantity, absent
from pagealloc_model.verdict.replay_metrics import replay_metrics

BY_RECLAIM = ("min_free_kbytes", "watermark_scale_factor", "watermark_boost_factor")
"""Policy fields whose effect is mostly that of other reclaim: watermarks wake and end it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Two replays of one recording side by side.

    Attributes:
        base: the replay compared against.
        patch: the replay with the change.
        rows: metric, scope, base, patch, change (relative to base), unit, better.
        pairs: the metric of each row on both sides, with its parts by window.
        known_errors: the model's errors; None: `errors` finds them.
    """

    _repr_html_ = CarriedOut("show.html.comparison", "comparison_html")
    _repr_pretty_ = CarriedOut("show.html.in_terminal", "print_text")

    base: Replay
    patch: Replay
    rows: pd.DataFrame
    pairs: tuple[tuple[Quantity, Quantity], ...] = field(default=(), repr=False)
    known_errors: ModelErrors | None = field(default=None, repr=False)

    @cached_property
    def errors(self) -> ModelErrors:
        """The model's errors on this recording; it is validated once, then they are kept."""
        if self.known_errors is not None:
            return self.known_errors
        recording = self.base.recording
        if recording is None:
            return ModelErrors(refused="it does not know its recording")
        errors = model_errors(recording, self.base.rules, self.base.assumptions)
        imposed = _acts_by_reclaim(self.base, self.patch)
        return replace(errors, refused=imposed) if imposed and not errors.refused else errors

    @cached_property
    def judged(self) -> pd.DataFrame:
        """`rows` with error, null_model, null_error, low, high and verdict; see `judged_rows`.

        Rows that failed their null model are the last.
        """
        return judged_rows(self.rows, self.pairs, self.errors)

    @property
    def believable(self) -> str:
        """One line: for which rows this comparison can be believed."""
        return believable_words(self.judged, self.errors.refused)

    def to_text(self, width: int = 72, style: Style = "signed") -> str:
        """The table with its sign rule and provenance, at most `width` columns of ASCII."""
        rows = self.judged
        if style == "mmtests":
            keys = zip(rows["metric"], rows["scope"], strict=True)
            rows = rows.assign(metric=[MMTESTS.get(key, key[0]) for key in keys])
        return comparison_table(
            rows, self.footer(), style=style, width=width, first=self.believable
        )

    def to_dict(self) -> dict[str, object]:
        """What `pagealloc compare --json` prints."""
        rows = self.judged.astype(object).where(self.judged.notna(), None)
        return {
            "base": self.base.provenance,
            "patch": self.patch.provenance,
            "believable": self.believable,
            "rows": rows.to_dict(orient="records"),
        }

    def footer(self) -> Footer:
        """What both columns were made from."""
        diverged = {
            f"{side} {name}": count
            for side, replay in (("base", self.base), ("patch", self.patch))
            for name, count in replay.divergence.items()
            if name in ("forced", "failed", "in_base_pages", "orphan_frees")
        }
        return Footer(
            recording=self.base.name,
            kernel=self.base.rules_origin,
            policy_difference=_difference(self.base, self.patch),
            version=f"{__version__} (model {self.base.provenance['model']})",
            lost_events=self.base.losses,
            divergences=diverged,
            assumptions=_assumed(self.base.assumptions),
            doubts=doubts_of(self.base.checks),
        )


def compare(base: Replay, patch: Replay) -> Comparison:
    """Put two replays of the same recording side by side.

    Raises:
        UsageError: the replays differ in recording, window, rules, assumptions or seed, so that a
            difference could not be laid at the policy's door.
    """
    for name in ("name", "rules", "assumptions", "seed"):
        mine, other = getattr(base, name), getattr(patch, name)
        if mine != other:
            raise UsageError(
                f"cannot compare replays of different {name}: {_brief(mine)} and {_brief(other)}"
            )
    if not np.array_equal(base.demand.events, patch.demand.events):
        raise UsageError(f"cannot compare replays of different recordings, both named {base.name}")
    if not np.array_equal(base.edges, patch.edges):
        raise UsageError("cannot compare replays of different windows")
    pairs = tuple(_pairs(base, patch))
    rows = [
        (
            before.metric,
            before.scope,
            before.value,
            after.value,
            relative_change(before.value, after.value),
            before.unit,
            before.better,
        )
        for before, after in pairs
    ]
    columns = ["metric", "scope", "base", "patch", "change", "unit", "better"]
    return Comparison(base=base, patch=patch, rows=pd.DataFrame(rows, columns=columns), pairs=pairs)


def relative_change(before: float, after: float) -> float:
    """(after - before) / before; 0 where both are 0, NaN where only the first is or one is NaN."""
    if before:
        return (after - before) / before
    return 0.0 if after == before else np.nan


def _pairs(base: Replay, patch: Replay) -> Iterator[tuple[Quantity, Quantity]]:
    """Each metric of either side; one that a side lacks is 0 there if it counts, else unknown."""
    before = {(each.metric, each.scope): each for each in replay_metrics(base)}
    after = {(each.metric, each.scope): each for each in replay_metrics(patch)}
    for key in [*before, *(key for key in after if key not in before)]:
        one, other = before.get(key), after.get(key)
        yield one or absent(other), other or absent(one)


def doubts_of(checks: Sequence[ProvenanceCheck]) -> tuple[str, ...]:
    """Return what is not plainly usable, one line each, what is refused first."""
    odd = [each for each in checks if each.level != USABLE]
    odd.sort(key=lambda each: -LEVELS.index(each.level))
    return tuple(f"{each.check} ({each.level}): {each.found}" for each in odd)


def _assumed(assumptions: Assumptions) -> str:
    line = f"reclaim {assumptions.reclaim}, counters {assumptions.counters}"
    return line if assumptions.reclaim == "elastic" else f"{line}; NA: {LITERAL}"


def _acts_by_reclaim(base: Replay, patch: Replay) -> str:
    """Why a literal replay cannot tell what a policy does that changes when reclaim runs."""
    if base.assumptions.reclaim != "literal":
        return ""
    before, after = base.policy.given(), patch.policy.given()
    names = [name for name in BY_RECLAIM if before.get(name) != after.get(name)]
    if not names:
        return ""
    return (
        f"{', '.join(names)} changes when reclaim runs, which a literal replay takes from the "
        "recording; replay with Assumptions(reclaim='elastic')"
    )


def _brief(value: object) -> str:
    return str(getattr(value, "name", value))


def _difference(base: Replay, patch: Replay) -> str:
    before, after = base.policy.given(), patch.policy.given()
    changed = []
    if base.kernel != patch.kernel:
        changed.append(f"code: {base.kernel or 'model'} -> {patch.kernel or 'model'}")
    if base.hooks != patch.hooks:
        before_hooks, after_hooks = (", ".join(each.hooks) or "none" for each in (base, patch))
        changed.append(f"hooks: {before_hooks} -> {after_hooks}")
    changed += [
        f"{name}: {_shown(name, before)} -> {_shown(name, after)}"
        for name in policy_settings()
        if before.get(name) != after.get(name)
    ]
    return "; ".join(changed) or "none"


def _shown(name: str, given: Mapping[str, Setting]) -> str:
    value = given.get(name)
    if value is None and "." in name:
        value = policy_settings()[name].default
    if value is None:
        return "as recorded"
    return value if isinstance(value, str) else str(int(value))
