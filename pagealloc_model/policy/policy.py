"""What can be swept: `Policy`, the kernel's choices, and `Assumptions`, ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, fields
from typing import Any

from pagealloc_model.base.errors import PolicyError, known_names
from pagealloc_model.policy.assumptions import Assumptions as Assumptions
from pagealloc_model.policy.policy_fields import (
    NESTED,
    Setting,
    check_setting,
    parse_setting,
)
from pagealloc_model.policy.pressure_policy import PressurePolicy


@dataclass(frozen=True, kw_only=True)
class Policy(PressurePolicy):
    """What the kernel could do differently; `None` means "as recorded".

    Each field's metadata carries `kernel_name`, `unit`, `minimum`, `maximum`, `step`, `default`
    (mainline's value, None where it is computed from the machine), `meaning`, `source`, `group`,
    `kind` ("int", "bool", "choice", "numbers" or "nested") and `choices`; a nested field has the
    dataclass that it holds as `options`, and that one's fields are settings with dotted names, see
    `policy_settings`. Sliders, command-line help and docs are generated from it.

    Raises:
        PolicyError: a value outside its range or of the wrong kind, or a lower bound above the
            upper one.
    """

    def __post_init__(self) -> None:
        """Check every value that is given against its field's range."""
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None:
                check_setting(each.name, each.metadata, value)
        fraction = self.percpu_pagelist_high_fraction
        if fraction is not None and 0 < fraction < 8:
            raise PolicyError(
                f"policy percpu_pagelist_high_fraction={fraction}: the kernel takes 0 or 8 and more"
            )
        low, high = self.pcp_high_min, self.pcp_high_max
        if low is not None and high is not None and low > high:
            raise PolicyError(
                f"policy pcp_high_min={low} is above pcp_high_max={high}: lower the one or raise "
                "the other"
            )

    @classmethod
    def parse(cls, settings: Iterable[str]) -> Policy:
        """A policy from "field=value" words, as `--set` takes them; "none" means as recorded.

        Raises:
            PolicyError: a word without "=", an unknown field or a bad value.
        """
        values: dict[str, Setting | None] = {}
        known = policy_settings()
        for each in settings:
            name, equals, text = each.partition("=")
            name = name.strip()
            if not equals:
                raise PolicyError(f"policy setting {each!r}: write field=value")
            if name not in known:
                raise _no_such_field(name)
            values[name] = parse_setting(name, known[name].metadata, text.strip())
        return cls.from_settings(values)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Setting | None]) -> Policy:
        """A policy from plain values, nested fields by dotted names, as `given` returns them.

        None means as recorded, or the default of a nested field.

        Raises:
            PolicyError: an unknown field or a bad value.
        """
        values: dict[str, Any] = {}
        parts: dict[str, dict[str, Setting]] = {}
        known = policy_settings()
        for name, value in settings.items():
            if name not in known:
                raise _no_such_field(name)
            outer, dot, inner = name.partition(".")
            if not dot:
                values[name] = value
            elif value is not None:
                parts.setdefault(outer, {})[inner] = value
        for each in fields(cls):
            if each.name in parts:
                values[each.name] = each.metadata["options"](**parts[each.name])
        return cls(**values)

    def given(self) -> dict[str, Setting]:
        """The settings that differ from "as recorded", plain values that JSON can hold.

        Of a nested field, those that differ from its defaults, by dotted names.
        """
        settings: dict[str, Setting] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.metadata["kind"] == NESTED and value is not None:
                changed = value.given().items()
                settings |= {f"{each.name}.{name}": part for name, part in changed}
            elif value is not None:
                settings[each.name] = value
        return settings

    def changed_by(self, other: Policy) -> Policy:
        """This policy with the settings that another one gives."""
        return Policy.from_settings(self.given() | other.given())

    def __str__(self) -> str:
        words = (
            f"{name}={value if isinstance(value, str) else int(value)}"
            for name, value in self.given().items()
        )
        return " ".join(words) or "as recorded"


def policy_settings() -> dict[str, Field[Any]]:
    """Every single value that a policy has: its fields, those of nested ones by dotted names."""
    settings: dict[str, Field[Any]] = {}
    for each in fields(Policy):
        if each.metadata["kind"] == NESTED:
            inner = fields(each.metadata["options"])
            settings |= {f"{each.name}.{option.name}": option for option in inner}
        else:
            settings[each.name] = each
    return settings


def _no_such_field(name: str) -> PolicyError:
    return PolicyError(
        f"policy has no field {name!r}; {known_names(name, policy_settings(), 'fields')}"
    )
