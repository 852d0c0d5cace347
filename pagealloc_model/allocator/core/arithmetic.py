"""Arithmetic as the kernel does it."""

from __future__ import annotations

from pagealloc_model.base.jit import inner


@inner
def clamp(value: int, low: int, high: int) -> int:
    """`value` kept within bounds; `high` is tested first and wins where the bounds cross."""
    if value >= high:
        return high
    return max(value, low)
