"""Settings: all that a replay is made under apart from its recording, and how axes change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, asdict, dataclass, field, fields, replace
from typing import Any

from pagealloc_model.bundle import Bundle
from pagealloc_model.errors import PolicyError
from pagealloc_model.hooks import Hooks
from pagealloc_model.kernel_build.build import KernelBuild
from pagealloc_model.kernel_rules import BY_ANSWERS, KernelRules
from pagealloc_model.policy import Assumptions, Policy
from pagealloc_model.prediction import Replay, replay
from pagealloc_model.sweeps.nested_fields import nested_field, with_nested_value

Code = KernelBuild | Hooks
POLICY_AXIS, RULES_AXIS, ASSUMPTIONS_AXIS = "policy", "rules", "assumptions"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a replay is made under.

    Attributes:
        policy: fields that differ from the recorded policy.
        code: a kernel build or hooks that decide in the model's place; None for the model.
        rules: as `replay` takes them.
        assumptions: ours.
        seed: of choices that nothing settles.
    """

    policy: Policy = field(default_factory=Policy)
    code: Code | None = None
    rules: KernelRules | str | None = None
    assumptions: Assumptions = field(default_factory=Assumptions)
    seed: int = 0

    def with_values(self, values: Mapping[str, object]) -> Settings:
        """These settings with some axes set.

        Args:
            values: by axis. "policy" takes a `Policy`, `KernelBuild` or `Hooks`, or None; "rules"
                what `replay` takes; "assumptions.FIELD" a value of `Assumptions`; any other name
                is a field of `Policy`, dotted where fields nest.

        Raises:
            PolicyError: no such axis, or a value it does not take.
        """
        changed = self
        for name, value in sorted(values.items(), key=lambda item: item[0] != POLICY_AXIS):
            if name == POLICY_AXIS:
                changed = changed._with_policy(value)
            elif name == RULES_AXIS:
                changed = replace(changed, rules=_checked_rules(value))
            else:
                changed = changed._with_field(name, value)
        changed.policy_given_to_replay()
        return changed

    def _with_policy(self, value: object) -> Settings:
        if value is None:
            return self
        if isinstance(value, Policy):
            return replace(self, policy=replace(self.policy, **value.given()))
        if isinstance(value, Code):
            return replace(self, code=value)
        raise PolicyError(
            f"policy={value!r}: give a Policy, a KernelBuild, Hooks, or None for as recorded"
        )

    def _with_field(self, name: str, value: object) -> Settings:
        axis_field(name)
        owner, path = _owner_and_path(name)
        if owner is Assumptions:
            return replace(self, assumptions=with_nested_value(self.assumptions, path, value))
        return replace(self, policy=with_nested_value(self.policy, path, value))

    def policy_given_to_replay(self) -> Policy | KernelBuild:
        """The policy, or the kernel build with it.

        Raises:
            PolicyError: the build's source decides one of the fields.
        """
        if isinstance(self.code, KernelBuild):
            merged = replace(self.code.policy, **self.policy.given())
            return replace(self.code, policy=merged)
        return self.policy

    def replayed(self, recording: Bundle, cancel: Callable[[], bool] | None = None) -> Replay:
        """Replay a recording under these settings; raises what `replay` does."""
        return replay(
            recording,
            self.policy_given_to_replay(),
            rules=self.rules,
            assumptions=self.assumptions,
            seed=self.seed,
            hooks=self.code if isinstance(self.code, Hooks) else None,
            progress=_unseen,
            cancel=cancel,
        )

    def spelled(self) -> dict[str, object]:
        """Everything a result depends on, in plain values, to name the result by."""
        rules = self.rules.spelled() if isinstance(self.rules, KernelRules) else self.rules
        return {
            "policy": self.policy.given(),
            "code": None if self.code is None else code_identity(self.code),
            "rules": rules,
            "assumptions": asdict(self.assumptions),
            "seed": self.seed,
        }


def code_identity(code: Code) -> str:
    """What names a kernel build or hooks in every process."""
    return f"{type(code).__name__} {code.fingerprint}"


def shown(value: object) -> object:
    """An axis's value as a cell of a table: plain values as they are, others by their names."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, KernelBuild):
        own = f" {value.policy}" if value.policy.given() else ""
        return f"{value.name}{own}"
    if isinstance(value, Hooks):
        return f"hooks {', '.join(value.names)} ({value.fingerprint})"
    if isinstance(value, KernelRules):
        return value.spelled()
    return str(value)


def axis_field(name: str) -> Field[Any] | None:
    """The dataclass field behind an axis, None for "policy" and "rules".

    Raises:
        PolicyError: no such axis.
    """
    if name in (POLICY_AXIS, RULES_AXIS):
        return None
    owner, path = _owner_and_path(name)
    found = nested_field(owner, path)
    if found is None:
        known = ", ".join(each.name for each in fields(Policy))
        assumed = ", ".join(f"{ASSUMPTIONS_AXIS}.{each.name}" for each in fields(Assumptions))
        raise PolicyError(
            f"cannot vary {name!r}; fields: {known}; also {POLICY_AXIS}, {RULES_AXIS}, {assumed}"
        )
    return found


def _owner_and_path(name: str) -> tuple[type, list[str]]:
    path = name.split(".")
    return (Assumptions, path[1:]) if path[0] == ASSUMPTIONS_AXIS else (Policy, path)


def _checked_rules(value: object) -> KernelRules | str | None:
    if value is None or value == BY_ANSWERS or isinstance(value, KernelRules):
        return value  # type: ignore[return-value]
    if not isinstance(value, str):
        raise PolicyError(f"rules={value!r}: give the name of a preset, KernelRules or None")
    KernelRules.named(value)
    return value


def _unseen(share: float) -> None:
    """A point's own progress, which the sweep's bar stands for."""
