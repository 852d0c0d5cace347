"""Fields of a policy: what each says of itself, and its values, read and checked."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import field, fields
from inspect import Parameter, Signature
from typing import Any

from pagealloc_model.base.errors import PolicyError, known_names

INT, BOOL, CHOICE, NUMBERS, NESTED = "int", "bool", "choice", "numbers", "nested"

Setting = int | bool | str
"""A value of one field: a number, a switch, or one of a field's choices."""

SWITCH_WORDS = {"1": True, "0": False, "true": True, "false": False, "on": True, "off": False}


class Given(type):
    """Class of the dataclasses that a user fills in by naming fields.

    An unknown field is answered with near names, a PolicyError, and `help` shows fields in the
    docstring alone.
    """

    def __call__(cls, **values: Any) -> Any:
        """Make one."""
        known = [option.name for option in fields(cls)]  # type: ignore[arg-type]
        for name in values:
            if name not in known:
                near = known_names(name, known, "fields")
                raise PolicyError(f"{cls.__name__} has no field {name!r}; {near}")
        return super().__call__(**values)

    @property
    def __signature__(cls) -> Signature:
        """Its fields, for completion and `help`."""
        parameters = [
            Parameter(option.name, Parameter.KEYWORD_ONLY, default=option.default)
            for option in fields(cls)  # type: ignore[arg-type]
        ]
        return Signature(parameters)

    def __dir__(cls) -> list[str]:
        return [name for name in vars(cls) if callable(getattr(cls, name)) and name[0] != "_"]


def documented(owner: Any) -> Any:
    """Let a class's docstring end in its fields: kernel name, values and meaning of each."""
    lines = [owner.__doc__.rstrip(), "", "    Fields:"]
    for option in fields(owner):
        about = option.metadata
        words = f"{option.name}: {about['kernel_name']} ({values_of(about)}): {about['meaning']}"
        lines += textwrap.wrap(words, 98, initial_indent="      ", subsequent_indent="          ")
    owner.__doc__ = "\n".join(lines)
    return owner


def values_of(about: Mapping[str, Any]) -> str:
    """The values that a field takes, in words."""
    if about["kind"] == NESTED:
        return f"an {about['options'].__name__}"
    if about["kind"] == CHOICE:
        return ", ".join(about["choices"])
    if about["kind"] == BOOL:
        return "0 or 1"
    several = "several of " if about["kind"] == NUMBERS else ""
    return f"{several}{about['minimum']} to {about['maximum']} {about['unit']}".rstrip()


def setting(
    kernel_name: str,
    meaning: str,
    *,
    kind: str = "",
    default: Setting | None = None,
    starts_unset: bool = True,
    choices: tuple[str, ...] = (),
    rule: str = "",
    **about: Any,
) -> Any:
    """A field of a policy dataclass with its metadata, see `Policy`.

    Args:
        kernel_name: what the kernel calls it.
        meaning: one line.
        kind: INT, BOOL or CHOICE, by default as `choices`, `rule` and `default` show; NUMBERS is
            several numbers as text, with blanks between them; NESTED a dataclass of settings.
        default: what mainline does where the recording does not say; an option's default.
        starts_unset: the field's own default is None, "as recorded"; otherwise `default`.
        choices: words allowed, of a CHOICE; those that a menu offers, of NUMBERS.
        rule: field of `KernelRules` that decides where the policy is silent.
        **about: `source`, the section of the spec, patch or post that it is from; `group`, the
            heading that it is shown under; `unit`, `minimum` and `maximum` of its number; `step`
            of a slider; `options`, the class of NESTED; `elastic_only`: it acts through reclaim,
            compaction or the slow path in full, which a literal replay repeats as recorded.
    """
    is_switch = bool(rule) or isinstance(default, bool)
    known = {
        "kernel_name": kernel_name,
        "meaning": meaning,
        "kind": kind or (CHOICE if choices else BOOL if is_switch else INT),
        "default": default,
        "choices": choices,
        "rule": rule,
    }
    numbers = {"unit": "", "minimum": 0, "maximum": 1, "step": 1}
    others = {"options": None, "elastic_only": False}
    return field(
        default=None if starts_unset else default, metadata=numbers | others | known | about
    )


def parse_setting(name: str, about: Mapping[str, Any], text: str) -> Setting | None:
    """The value of field `name`, which has metadata `about`, from text; "none" is None.

    Raises:
        PolicyError: not a value of this kind.
    """
    if text.lower() == "none":
        return None
    if about["kind"] in (CHOICE, NUMBERS):
        check_setting(name, about, text)
        return text
    if about["kind"] == BOOL:
        if text.lower() not in SWITCH_WORDS:
            raise PolicyError(f"policy {name}={text}: write 0 or 1")
        return SWITCH_WORDS[text.lower()]
    if not re.fullmatch(r"[+-]?[0-9]{1,30}", text):
        raise PolicyError(f"policy {name}={text}: write a whole number")
    return int(text)


def check_setting(name: str, about: Mapping[str, Any], value: object) -> None:
    """Refuse a value that field `name`, which has metadata `about`, cannot have.

    Raises:
        PolicyError: wrong kind, outside the range, or not among the choices.
    """
    kind = about["kind"]
    if kind == BOOL and isinstance(value, bool):
        return
    if kind == NESTED:
        if not isinstance(value, about["options"]):
            raise PolicyError(f"policy {name}={value!r}: give an {about['options'].__name__}")
    elif kind == CHOICE:
        if value not in about["choices"]:
            raise PolicyError(f"policy {name}={value}: use one of {', '.join(about['choices'])}")
    elif kind == NUMBERS:
        low, high = about["minimum"], about["maximum"]
        words = value.split() if isinstance(value, str) else []
        if not words or not all(word.isdecimal() and low <= int(word) <= high for word in words):
            raise PolicyError(
                f"policy {name}={value}: write whole numbers from {low} to {high}, blanks between "
                "them"
            )
    elif not isinstance(value, int) or isinstance(value, bool):
        raise PolicyError(f"policy {name}={value!r}: write a whole number")
    elif not about["minimum"] <= value <= about["maximum"]:
        raise PolicyError(
            f"policy {name}={value} is outside {about['minimum']} to {about['maximum']}"
        )
