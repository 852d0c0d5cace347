"""gfp flag names and their bits, from the print format of a recording's own format data (S2.3)."""

from __future__ import annotations

import re
from collections.abc import Mapping

_TOKEN = re.compile(
    r"\s*(?:(?P<number>0[xX][0-9a-fA-F]+|\d+)[uUlL]*|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<operator><<|>>|[()|&~+\-*]))"
)
_ENTRY = re.compile(r"\{(?P<value>[^{}\"]+),\s*\"(?P<name>\w+)\"\s*\}")
_PRECEDENCE = {"|": 1, "&": 2, "<<": 3, ">>": 3, "+": 4, "-": 4, "*": 5}
_DEEPEST = 200


def gfp_bits_from_print_fmt(print_fmt: str) -> dict[str, int]:
    """Names such as "__GFP_HIGH" and "GFP_KERNEL" with their masks (S2.3, S2.4).

    Args:
        print_fmt: the `print fmt` text of kmem:mm_page_alloc.

    Raises:
        ValueError: a value in the flag table is not a constant expression.
    """
    bits = {
        entry["name"]: _Expression(entry["value"].strip()).value() & 0xFFFFFFFFFFFFFFFF
        for entry in _ENTRY.finditer(print_fmt)
    }
    return with_zone_names(bits)


def with_zone_names(bits: Mapping[str, int]) -> dict[str, int]:
    """The same and __GFP_DMA and __GFP_DMA32: some kernels name these without underscores only."""
    aliases = {f"__{name}": bits[name] for name in ("GFP_DMA", "GFP_DMA32") if name in bits}
    return {**aliases, **bits}


def gfp_from_names(text: str, bits: Mapping[str, int]) -> int:
    """The gfp word that prints as `text`, such as "GFP_KERNEL|__GFP_ZERO" or "0x1000000".

    Raises:
        ValueError: a name that `bits` does not hold.
    """
    word = 0
    for name in text.split("|"):
        if name in bits:
            word |= bits[name]
        elif name.startswith("0x"):
            word |= int(name, 16)
        elif name not in ("none", "0"):
            raise ValueError(f"unknown gfp flag {name}")
    return word


def gfp_names(word: int, bits: Mapping[str, int]) -> str:
    """Return a gfp word as the kernel prints it: names in the order of its table, then the rest.

    Args:
        word: the gfp word.
        bits: names and masks, in the order of the kernel's table.
    """
    if not word:
        return "none"
    names = []
    for name, mask in bits.items():
        if mask and word & mask == mask:
            names.append(name)
            word &= ~mask
    return "|".join([*names, *([hex(word)] if word else [])])


class _Expression:
    """A C constant expression of integers, casts and the operators of a flag table."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._unreadable()
            self._tokens.append((str(match.lastgroup), match[str(match.lastgroup)]))
            position = match.end()
        self._next = 0

    def value(self) -> int:
        result = self._binary(1, 0)
        if self._next != len(self._tokens):
            raise self._unreadable()
        return result

    def _unreadable(self) -> ValueError:
        return ValueError(f"flag table with an unreadable value: {self._text[:60]}")

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._next] if self._next < len(self._tokens) else ("end", "")

    def _take(self, expected: str | None = None) -> tuple[str, str]:
        token = self._peek()
        if token[0] == "end" or (expected is not None and token[1] != expected):
            raise self._unreadable()
        self._next += 1
        return token

    def _binary(self, lowest: int, depth: int) -> int:
        left = self._unary(depth + 1)
        while _PRECEDENCE.get(self._peek()[1], 0) >= lowest:
            operator = self._take()[1]
            right = self._binary(_PRECEDENCE[operator] + 1, depth + 1)
            left = self._apply(operator, left, right)
        return left

    def _unary(self, depth: int) -> int:
        if depth > _DEEPEST:
            raise self._unreadable()
        kind, text = self._take()
        if kind == "number":
            return int(text, 8) if re.fullmatch(r"0[0-7]+", text) else int(text, 0)
        if text == "~":
            return ~self._unary(depth + 1)
        if text == "-":
            return -self._unary(depth + 1)
        if text != "(":
            raise self._unreadable()
        if self._skip_cast():
            return self._unary(depth + 1)
        inner = self._binary(1, depth + 1)
        self._take(")")
        return inner

    def _skip_cast(self) -> bool:
        """Step over the words of a cast whose opening parenthesis was just taken."""
        if self._peek()[0] != "word":
            return False
        while self._peek()[0] == "word":
            self._next += 1
        self._take(")")
        return True

    def _apply(self, operator: str, left: int, right: int) -> int:
        if operator in ("<<", ">>") and not 0 <= right < 64:
            raise self._unreadable()
        match operator:
            case "|":
                return left | right
            case "&":
                return left & right
            case "<<":
                return left << right
            case ">>":
                return left >> right
            case "+":
                return left + right
            case "-":
                return left - right
        return left * right
