"""Points of a sweep: settings as policies, grids, one at a time, space-filling designs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from pagealloc_model.allocator.hooks import Hooks
from pagealloc_model.base.errors import PolicyError, UsageError, known_names
from pagealloc_model.base.progress_bar import unreported
from pagealloc_model.policy.kernel_rules import BY_ANSWERS, KernelRules
from pagealloc_model.policy.policy import AUTO, Assumptions, Policy, policy_settings
from pagealloc_model.policy.policy_fields import BOOL, CHOICE, INT, parse_setting
from pagealloc_model.predicted.carrier import Engine
from pagealloc_model.predicted.reclaim_mode import ReclaimChoice
from pagealloc_model.predicted.replay import Replay, replay
from pagealloc_model.recording.recording import Recording

Code = Engine | Hooks
Point = dict[str, object]
"""Values by axis (`Settings.with_values`)."""
POLICY_AXIS, RULES_AXIS, ASSUMPTIONS_AXIS = "policy", "rules", "assumptions"
LARGEST_RANGE = 100_000
"""More steps than this in one START:STOP:STEP are taken for a slip."""
_KINDS = {bool: BOOL, int: INT, str: CHOICE}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a replay."""

    policy: Policy = field(default_factory=Policy)
    code: Code | None = None
    rules: KernelRules | str | None = None
    assumptions: Assumptions = field(default_factory=Assumptions)
    seed: int = 0

    @property
    def start(self) -> tuple[object, ...]:
        """The settings that the state which a replay begins with depends on."""
        return self.rules, self.assumptions, self.seed

    def with_values(self, values: Mapping[str, object]) -> Settings:
        """These settings with some axes set; a PolicyError of one that it does not take.

        Args:
            values: by axis. "policy" takes a `Policy`, `KernelBuild` or `Hooks`, or None; "rules"
                what `replay` takes; "assumptions.FIELD" a value of `Assumptions`; any other name
                is a setting of `Policy` (`policy_settings`), of which None means as recorded.
        """
        changed = self
        for name, value in sorted(values.items(), key=lambda item: item[0] != POLICY_AXIS):
            if name == POLICY_AXIS:
                if isinstance(value, Policy):
                    changed = replace(changed, policy=changed.policy.changed_by(value))
                elif isinstance(value, Code):
                    changed = replace(changed, code=value)
                elif value is not None:
                    raise PolicyError(
                        f"policy={value!r}: give a Policy, a KernelBuild, Hooks, or None for as "
                        "recorded"
                    )
            elif name == RULES_AXIS:
                if isinstance(value, str) and value != BY_ANSWERS:
                    KernelRules.named(value)
                elif not (value is None or isinstance(value, KernelRules | str)):
                    raise PolicyError(
                        f"rules={value!r}: give the name of a preset, KernelRules or None"
                    )
                changed = replace(changed, rules=value)
            else:
                axis_metadata(name)
                outer, _, inner = name.partition(".")
                if outer == ASSUMPTIONS_AXIS:
                    assumed = replace(changed.assumptions, **{inner: value})
                    changed = replace(changed, assumptions=assumed)
                else:
                    policy = Policy.from_settings(changed.policy.given() | {name: value})
                    changed = replace(changed, policy=policy)
        changed.decider()
        return changed

    def decider(self) -> Policy | Engine:
        """The policy, or the engine with it; PolicyError if its code decides a field."""
        if isinstance(self.code, Engine):
            return self.code.under(self.policy)
        return self.policy

    def in_mode(self, reclaim: ReclaimChoice | None) -> Settings:
        """These settings with a mode of reclaim where they name none."""
        if reclaim is None or self.assumptions.reclaim != AUTO:
            return self
        return replace(self, assumptions=replace(self.assumptions, reclaim=reclaim.mode))

    def replayed(self, recording: Recording, cancel: Callable[[], bool] | None = None) -> Replay:
        """Replay a recording under these settings; raises what `replay` does."""
        return replay(
            recording,
            self.decider(),
            rules=self.rules,
            assumptions=self.assumptions,
            seed=self.seed,
            hooks=self.code if isinstance(self.code, Hooks) else None,
            progress=unreported,
            cancel=cancel,
        )

    def spelled(self) -> dict[str, object]:
        """Everything a result depends on, in plain values, to name the result by."""
        code = self.code
        return {
            "policy": self.policy.given(),
            "code": None if code is None else f"{type(code).__name__} {code.fingerprint}",
            "rules": self.rules.spelled() if isinstance(self.rules, KernelRules) else self.rules,
            "assumptions": asdict(self.assumptions),
            "seed": self.seed,
        }


def shown(value: object) -> object:
    """An axis's value as a cell of a table: plain values as they are, others by their names."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Engine):
        own = f" {value.policy}" if value.policy.given() else ""
        return f"{value.name}{own}"
    if isinstance(value, Hooks):
        return f"hooks {', '.join(value.names)} ({value.fingerprint})"
    return value.spelled() if isinstance(value, KernelRules) else str(value)


def axis_metadata(name: str) -> Mapping[str, Any]:
    """Values of an axis, as `policy_fields.setting` describes them; {} for "policy" and "rules"."""
    if name in (POLICY_AXIS, RULES_AXIS):
        return {}
    settings = policy_settings()
    if name in settings:
        return settings[name].metadata
    assumed = {f"{ASSUMPTIONS_AXIS}.{own.name}": own.default for own in fields(Assumptions)}
    if name in assumed:
        return {"kind": _KINDS[type(assumed[name])]}
    known = (*settings, POLICY_AXIS, RULES_AXIS, *assumed)
    raise PolicyError(f"cannot vary {name!r}; {known_names(name, known, 'what can be varied')}")


def grid(vary: Mapping[str, Iterable[object]]) -> list[Point]:
    """Every combination of the axes' values; the last axis changes fastest."""
    axes = {name: list(dict.fromkeys(values)) for name, values in vary.items()}
    for name, values in axes.items():
        if not values:
            raise UsageError(f"cannot vary {name}: it has no values")
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def one_at_a_time(vary: Mapping[str, Iterable[object]]) -> list[Point]:
    """The base, as recorded, then every value of every axis with the others as recorded."""
    return [{}, *({name: value} for name, values in vary.items() for value in values)]


def space_filling(
    ranges: Mapping[str, tuple[int, int] | None], points: int, *, seed: int = 0
) -> list[Point]:
    """Points spread evenly over the ranges of several axes: a Latin hypercube (scipy.stats.qmc).

    Args:
        ranges: lowest and highest value by axis, both included; None for the field's own range.
        points: how many; points that coincide after rounding count once.
        seed: of the design.

    Raises:
        UsageError: no axis, no point, or an empty range.
        PolicyError: an axis that has no range of whole numbers.
    """
    if not ranges or points < 1:
        raise UsageError("a space-filling design needs at least one axis and one point")
    from scipy.stats import qmc

    bounds = {}
    for name, chosen in ranges.items():
        about = axis_metadata(name)
        if "minimum" not in about or about["kind"] not in (INT, BOOL):
            raise PolicyError(f"{name} has no range of whole numbers that a design could fill")
        low, high = chosen or (about["minimum"], about["maximum"])
        if low > high:
            raise UsageError(f"the range of {name} is empty: {low} to {high}")
        bounds[name] = (int(low), int(high), bool if about["kind"] == BOOL else int)
    sampler = qmc.LatinHypercube(len(bounds), rng=seed, optimization="random-cd")
    designed = [
        tuple(
            kind(low + int(share * (high - low + 1)))
            for share, (low, high, kind) in zip(unit, bounds.values(), strict=True)
        )
        for unit in sampler.random(points)
    ]
    return [dict(zip(ranges, values, strict=True)) for values in dict.fromkeys(designed)]


def parse_vary(words: Sequence[str]) -> dict[str, list[Any]]:
    """Axes from words such as "pcp_batch=15,31,63", "costly_order=0:9:3" or "rules=6.12,6.18".

    A range START:STOP:STEP includes STOP, as seq(1) does; ":STEP" may be left out.
    """
    vary: dict[str, list[Any]] = {}
    for word in words:
        name, equals, text = (part.strip() for part in word.partition("="))
        if not equals or not text:
            raise UsageError(f"--vary {word}: write FIELD=VALUE,VALUE,... or FIELD=START:STOP:STEP")
        if name in vary:
            raise UsageError(f"--vary {name}: named twice; give all its values at once")
        about = axis_metadata(name)
        vary[name] = []
        for part in map(str.strip, text.split(",")):
            if about.get("kind") == INT and ":" in part:
                vary[name] += _range(name, part)
            elif not about or ("choices" not in about and about["kind"] == CHOICE):
                vary[name].append(None if part.lower() == "none" else part)
            else:
                vary[name].append(parse_setting(name, about, part))
    return vary


def _range(name: str, text: str) -> range:
    try:
        start, stop, step = [*(int(part) for part in text.split(":")), 1][:3]
    except ValueError:
        raise UsageError(f"--vary {name}={text}: write START:STOP:STEP in whole numbers") from None
    if step <= 0 or stop < start or (stop - start) // step >= LARGEST_RANGE:
        raise UsageError(
            f"--vary {name}={text}: a range goes up in steps of 1 or more, from START to STOP"
        )
    return range(start, stop + 1, step)
