"""What a field of a policy says of itself, and how its values are read and checked."""

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

    An unknown field is answered with near names, and `help` shows fields in the docstring alone.
    """

    def __call__(cls, **given: Any) -> Any:
        """Make one.

        Raises:
            PolicyError: an unknown field.
        """
        known = [each.name for each in fields(cls)]  # type: ignore[arg-type]
        for name in given:
            if name not in known:
                near = known_names(name, known, "fields")
                raise PolicyError(f"{cls.__name__} has no field {name!r}; {near}")
        return super().__call__(**given)

    @property
    def __signature__(cls) -> Signature:
        """Its fields, for completion and `help`."""
        given = [(each.name, each.default) for each in fields(cls)]  # type: ignore[arg-type]
        return Signature(
            [Parameter(name, Parameter.KEYWORD_ONLY, default=value) for name, value in given]
        )

    def __dir__(cls) -> list[str]:
        """Names of its methods."""
        return [name for name in vars(cls) if callable(getattr(cls, name)) and name[0] != "_"]


def documented(owner: Any) -> Any:
    """Let a class's docstring end in its fields: kernel name, values and meaning of each."""
    lines = [owner.__doc__.rstrip(), "", "    Fields:"]
    for each in fields(owner):
        about = each.metadata
        words = f"{each.name}: {about['kernel_name']} ({values_of(about)}): {about['meaning']}"
        lines += textwrap.wrap(words, 98, initial_indent="      ", subsequent_indent="          ")
    owner.__doc__ = "\n".join(lines)
    return owner


def values_of(about: Mapping[str, Any]) -> str:
    """What values a field takes, in words."""
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
    source: str,
    group: str,
    unit: str = "",
    minimum: int = 0,
    maximum: int = 1,
    step: int = 1,
    default: Setting | None = None,
    kind: str = INT,
    choices: tuple[str, ...] = (),
    starts_unset: bool = True,
    rule: str = "",
    elastic_only: bool = False,
) -> Any:
    """A field of a policy dataclass with its metadata, see `Policy`.

    Args:
        kernel_name: what the kernel calls it.
        meaning: one line.
        source: section of the spec, patch or post that it is from.
        group: heading that it is shown under.
        unit: of its number.
        minimum: smallest number allowed.
        maximum: largest.
        step: of a slider.
        default: what mainline does where the recording does not say; an option's default.
        kind: INT, BOOL or CHOICE; NUMBERS is several numbers as text, with blanks between them.
        choices: words allowed, of a CHOICE; those that a menu offers, of NUMBERS.
        starts_unset: the field's own default is None, "as recorded"; otherwise `default`.
        rule: field of `KernelRules` that decides where the policy is silent.
        elastic_only: it acts through reclaim, compaction or the slow path in full, which a literal
            replay repeats as recorded.
    """
    return field(
        default=None if starts_unset else default,
        metadata={
            "kernel_name": kernel_name,
            "meaning": meaning,
            "source": source,
            "group": group,
            "unit": unit,
            "minimum": minimum,
            "maximum": maximum,
            "step": step,
            "default": default,
            "kind": kind,
            "choices": choices,
            "rule": rule,
            "elastic_only": elastic_only,
        },
    )


def nested(kernel_name: str, meaning: str, *, source: str, group: str, options: type) -> Any:
    """Metadata of a field that holds a dataclass with settings of its own, None by default."""
    return {
        "kernel_name": kernel_name,
        "meaning": meaning,
        "source": source,
        "group": group,
        "kind": NESTED,
        "options": options,
    }


def parse_setting(name: str, about: Mapping[str, Any], text: str) -> Setting | None:
    """A field's value from text; "none" is None.

    Args:
        name: the field, for complaints.
        about: its metadata.
        text: what was written.

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
    if not _WHOLE.fullmatch(text):
        raise PolicyError(f"policy {name}={text}: write a whole number")
    return int(text)


_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")


def check_setting(name: str, about: Mapping[str, Any], value: object) -> None:
    """Refuse a value that a field cannot have.

    Args:
        name: the field, for complaints.
        about: its metadata.
        value: what it was given.

    Raises:
        PolicyError: wrong kind, outside the range, or not among the choices.
    """
    kind = about["kind"]
    if kind == NESTED:
        if not isinstance(value, about["options"]):
            raise PolicyError(f"policy {name}={value!r}: give an {about['options'].__name__}")
        return
    if kind == CHOICE:
        if value not in about["choices"]:
            raise PolicyError(f"policy {name}={value}: use one of {', '.join(about['choices'])}")
        return
    if kind == BOOL and isinstance(value, bool):
        return
    low, high = about["minimum"], about["maximum"]
    if kind == NUMBERS:
        words = value.split() if isinstance(value, str) else []
        if not words or not all(word.isdecimal() and low <= int(word) <= high for word in words):
            raise PolicyError(
                f"policy {name}={value}: write whole numbers from {low} to {high}, blanks between "
                "them"
            )
        return
    if not isinstance(value, int) or isinstance(value, bool):
        raise PolicyError(f"policy {name}={value!r}: write a whole number")
    if not low <= value <= high:
        raise PolicyError(f"policy {name}={value} is outside {low} to {high}")
