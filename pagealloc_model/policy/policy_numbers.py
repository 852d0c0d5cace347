"""A policy as the numbers that kernels read, and its fields by kind."""

from __future__ import annotations

from dataclasses import fields

from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy
from pagealloc_model.policy.policy_fields import BOOL, INT


def field_kinds() -> dict[str, str]:
    """Policy field -> "int", "bool", "choice", "numbers" or "nested"."""
    return {each.name: each.metadata["kind"] for each in fields(Policy)}


def elastic_fields() -> tuple[str, ...]:
    """Names of the policy's fields that only an elastic replay reads."""
    return tuple(each.name for each in fields(Policy) if each.metadata.get("elastic_only"))


def number_fields() -> tuple[str, ...]:
    """Names of the policy's own fields that are numbers or switches, in their order."""
    return tuple(name for name, kind in field_kinds().items() if kind in (INT, BOOL))


def policy_numbers(policy: Policy, rules: KernelRules) -> dict[str, int]:
    """Return what a kernel goes by for each of `number_fields`.

    That is the policy's value; where it is None, the kernel's rule, if the field names one, or
    what mainline does; 0 where nothing says.
    """
    numbers = {}
    for each in fields(Policy):
        if each.metadata["kind"] in (INT, BOOL):
            value = getattr(policy, each.name)
            if value is None and each.metadata["rule"]:
                value = getattr(rules, each.metadata["rule"])
            if value is None:
                value = each.metadata["default"]
            numbers[each.name] = int(value or 0)
    return numbers
