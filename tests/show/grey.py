"""Colours as a grey print has them."""

from __future__ import annotations

READABLE = 3.0
"""Ratio of contrast that WCAG 2 AA asks of graphics."""


def luminance(colour: str) -> float:
    """Relative luminance of "#RRGGBB" or "white", 0 to 1 (WCAG 2)."""
    digits = "#FFFFFF" if colour == "white" else colour
    shares = [int(digits[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = [
        share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares
    ]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: float, second: float) -> float:
    """Ratio of two luminances, 1 to 21."""
    low, high = sorted((first, second))
    return (high + 0.05) / (low + 0.05)
