"""The sides of an experiment, and the pairs of them that differ in one setting."""

from __future__ import annotations

import itertools
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pagealloc_model.policy.policy import Policy
from pagealloc_model.studies.experiments.plan import Kernel, Plan
from pagealloc_model.studies.experiments.settings import KERNEL


@dataclass(frozen=True, kw_only=True)
class Side:
    """What one kernel and one choice of values is.

    Attributes:
        letter: A, B, ..., in the plan's order.
        kernel: what is booted; None where all recordings were made before.
        values: by setting.
    """

    letter: str
    kernel: Kernel | None
    values: Mapping[str, str]

    @property
    def choices(self) -> dict[str, str]:
        """Its value on every axis, the kernel's name among them."""
        kernel = {KERNEL: self.kernel.name} if self.kernel is not None else {}
        return {**kernel, **self.values}


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two sides that differ in one setting, and what stands for the difference.

    Attributes:
        before: the side that is recorded and predicted from.
        after: the one that is predicted.
        axis: the setting that differs, or `KERNEL`.
        policy: under which `before` is replayed to predict `after`.
        rules: rules to replay it under, "" for those of its own kernel.
        modelled: something stands for the difference; if not, no change is predicted.
    """

    before: Side
    after: Side
    axis: str
    policy: Policy
    rules: str = ""
    modelled: bool = True

    @property
    def title(self) -> str:
        """Such as "A -> B: vm.min_free_kbytes 2048 -> 16384"."""
        values = f"{self.before.choices[self.axis]} -> {self.after.choices[self.axis]}"
        return f"{self.before.letter} -> {self.after.letter}: {self.axis} {values}"


def sides_of(plan: Plan) -> tuple[Side, ...]:
    """All sides of a plan; the first has the first kernel and every setting's first value."""
    kernels: tuple[Kernel | None, ...] = plan.kernels or (None,)
    names = [each.setting for each in plan.vary]
    if plan.design == "grid":
        combinations = list(itertools.product(*(each.values for each in plan.vary)))
    else:
        first = tuple(each.values[0] for each in plan.vary)
        combinations = [first]
        for place, each in enumerate(plan.vary):
            for value in each.values[1:]:
                combinations.append((*first[:place], value, *first[place + 1 :]))
    chosen = itertools.product(kernels, combinations)
    return tuple(
        Side(letter=_letter(number), kernel=kernel, values=dict(zip(names, values, strict=True)))
        for number, (kernel, values) in enumerate(chosen)
    )


def _letter(number: int) -> str:
    """A to Z, then AA, AB, ..., as columns of a spreadsheet."""
    letters = string.ascii_uppercase
    before, last = divmod(number, len(letters))
    return (_letter(before - 1) if before else "") + letters[last]


def pairs_of(plan: Plan, sides: tuple[Side, ...]) -> tuple[Pair, ...]:
    """Every two sides that differ in one setting; the earlier one predicts the later one.

    Two kernels are a pair if the later one has rules.
    """
    pairs = []
    for before, after in itertools.combinations(sides, 2):
        differ = [axis for axis, value in after.choices.items() if before.choices[axis] != value]
        if len(differ) == 1:
            pair = _pair(plan, before, after, differ[0])
            if pair is not None:
                pairs.append(pair)
    return tuple(pairs)


def _pair(plan: Plan, before: Side, after: Side, axis: str) -> Pair | None:
    if axis == KERNEL:
        rules = after.kernel.rules if after.kernel is not None else ""
        if not rules:
            return None
        return Pair(before=before, after=after, axis=axis, policy=Policy(), rules=rules)
    vary = next(each for each in plan.vary if each.setting == axis)
    value = after.values[axis]
    rules = vary.rules[vary.values.index(value)] if vary.rules else ""
    return Pair(
        before=before,
        after=after,
        axis=axis,
        policy=vary.policy(value),
        rules=rules,
        modelled=bool(vary.field or rules),
    )


def side_lines(sides: Sequence[Side]) -> list[str]:
    """One line for each side: all of the first one's values, then what others differ in."""
    first = sides[0].choices
    lines = []
    for number, side in enumerate(sides):
        shown = {
            axis: value
            for axis, value in side.choices.items()
            if not number or first[axis] != value
        }
        lines.append(f"{side.letter}: " + ", ".join(f"{name} {shown[name]}" for name in shown))
    return lines


def described_sides(plan: Plan) -> list[str]:
    """One line for each side, then for each pair with what stands for it in the model."""
    sides = sides_of(plan)
    lines = side_lines(sides)
    for pair in pairs_of(plan, sides):
        stands = str(pair.policy) if pair.policy.given() else f"rules {pair.rules}"
        lines.append(f"{pair.title}; predicted by {stands if pair.modelled else 'no change'}")
    return lines
