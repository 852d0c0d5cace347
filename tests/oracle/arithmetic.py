"""Integer arithmetic with the rounding the kernel uses."""

from __future__ import annotations


def clamp(value: int, low: int, high: int) -> int:
    """clamp(): return `value` kept within bounds.

    `high` is tested first and wins where the bounds cross.

    Source: S4.4, S4.6.
    """
    if value >= high:
        return high
    return max(value, low)


def rounddown_pow_of_two(value: int) -> int:
    """rounddown_pow_of_two(): return the largest power of two not above a positive value."""
    return 1 << (value.bit_length() - 1)


def round_up(value: int, multiple: int) -> int:
    """roundup(): return the smallest multiple not below the value."""
    return -(-value // multiple) * multiple
