"""Settings: all that a replay is made under apart from its recording, and how axes change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from pagealloc_model.allocator.from_source.build import KernelBuild
from pagealloc_model.allocator.hooks import Hooks
from pagealloc_model.base.errors import PolicyError, known_names
from pagealloc_model.base.progress_bar import unreported
from pagealloc_model.policy.kernel_rules import BY_ANSWERS, KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy, policy_settings
from pagealloc_model.policy.policy_fields import BOOL, CHOICE, INT
from pagealloc_model.predicted.replay import Replay, replay
from pagealloc_model.recording.recording import Recording

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
                is a setting of `Policy` (`policy_settings`), of which None means as recorded.

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
            return replace(self, policy=self.policy.changed_by(value))
        if isinstance(value, Code):
            return replace(self, code=value)
        raise PolicyError(
            f"policy={value!r}: give a Policy, a KernelBuild, Hooks, or None for as recorded"
        )

    def _with_field(self, name: str, value: Any) -> Settings:
        axis_metadata(name)
        outer, _, inner = name.partition(".")
        if outer == ASSUMPTIONS_AXIS:
            return replace(self, assumptions=replace(self.assumptions, **{inner: value}))
        return replace(self, policy=Policy.from_settings(self.policy.given() | {name: value}))

    def policy_given_to_replay(self) -> Policy | KernelBuild:
        """The policy, or the kernel build with it.

        Raises:
            PolicyError: the build's source decides one of the fields.
        """
        if isinstance(self.code, KernelBuild):
            return replace(self.code, policy=self.code.policy.changed_by(self.policy))
        return self.policy

    def replayed(self, recording: Recording, cancel: Callable[[], bool] | None = None) -> Replay:
        """Replay a recording under these settings; raises what `replay` does."""
        return replay(
            recording,
            self.policy_given_to_replay(),
            rules=self.rules,
            assumptions=self.assumptions,
            seed=self.seed,
            hooks=self.code if isinstance(self.code, Hooks) else None,
            progress=unreported,
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


def axis_metadata(name: str) -> Mapping[str, Any]:
    """What an axis takes, as `policy_fields.setting` describes it; {} for "policy" and "rules".

    Raises:
        PolicyError: no such axis.
    """
    if name in (POLICY_AXIS, RULES_AXIS):
        return {}
    settings = policy_settings()
    if name in settings:
        return settings[name].metadata
    assumed = {f"{ASSUMPTIONS_AXIS}.{each.name}": each.default for each in fields(Assumptions)}
    if name in assumed:
        return {"kind": _KINDS[type(assumed[name])]}
    known = (*settings, POLICY_AXIS, RULES_AXIS, *assumed)
    raise PolicyError(f"cannot vary {name!r}; {known_names(name, known, 'what can be varied')}")


_KINDS = {bool: BOOL, int: INT, str: CHOICE}


def _checked_rules(value: object) -> KernelRules | str | None:
    if value is None or value == BY_ANSWERS or isinstance(value, KernelRules):
        return value  # type: ignore[return-value]
    if not isinstance(value, str):
        raise PolicyError(f"rules={value!r}: give the name of a preset, KernelRules or None")
    KernelRules.named(value)
    return value
