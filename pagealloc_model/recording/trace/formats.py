"""Format data of tracepoints: fields of raw records, and names of gfp bits (T1.1, S2.3)."""

from __future__ import annotations

import ast
import operator
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

_FIELD = re.compile(
    r"^\s*field:(?P<declaration>[^;]{1,400});\s*offset:(?P<offset>\d{1,9});"
    r"\s*size:(?P<size>\d{1,9});(?:\s*signed:(?P<signed>[01]);)?"
)
_DIGITS = 9
_CHAR = re.compile(r"\bchar\b")
_DECLARATION = re.compile(r"^(?P<type>(?:.*\W)?)(?P<name>\w+)\s*+(?P<array>\[[^][]*\]\s*+)?$")


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field of a tracepoint's raw record: its C type without the array part, its bytes."""

    name: str
    type: str
    offset: int
    size: int
    signed: bool
    array: bool

    @property
    def end(self) -> int:
        """First byte after the field."""
        return self.offset + self.size

    @property
    def is_integer(self) -> bool:
        """The field is one number of 1, 2, 4 or 8 bytes."""
        return not self.array and not self.is_dynamic and self.size in (1, 2, 4, 8)

    @property
    def is_dynamic(self) -> bool:
        """The field only points at data placed elsewhere in the record."""
        return self.size == 4 and self.type.startswith(("__data_loc", "__rel_loc"))

    @property
    def is_string(self) -> bool:
        """The field is text: a char array in place, or a dynamic one."""
        return bool(_CHAR.search(self.type)) and (self.array or self.is_dynamic)


@dataclass(frozen=True, kw_only=True)
class TracepointFormat:
    """One tracepoint as the recording's format data describe it.

    Its id is the number that perf_event_attr.config carries; common fields come first.
    """

    system: str
    name: str
    id: int
    fields: tuple[Field, ...]
    print_fmt: str

    @property
    def event_name(self) -> str:
        """The name perf uses, such as `kmem:mm_page_alloc`."""
        return f"{self.system}:{self.name}"

    @property
    def column_fields(self) -> tuple[Field, ...]:
        """The fields that become columns of a table: its own, but no arrays of numbers."""
        own = (field for field in self.fields if not field.name.startswith("common_"))
        return tuple(field for field in own if field.is_integer or field.is_string)

    def field(self, name: str) -> Field | None:
        """The field of that name, or None."""
        return next((field for field in self.fields if field.name == name), None)


def parse_format(system: str, text: str) -> TracepointFormat:
    """Parse the text of `events/SYSTEM/NAME/format`; a ValueError says what is wrong with it."""
    values, fields = {"name:": "", "ID:": "", "print fmt:": ""}, []
    for line in text.splitlines():
        key = next((key for key in values if line.startswith(key)), None)
        if key is not None:
            values[key] = values[key] or line[len(key) :].strip()
        elif line.lstrip().startswith("field:"):
            match = _FIELD.match(line)
            declared = _DECLARATION.match(match["declaration"]) if match else None
            if match is None or declared is None:
                raise ValueError(f"format text with an unreadable field: {line.strip()[:80]}")
            c_type = declared["type"].strip()
            field = Field(
                name=declared["name"],
                type=c_type,
                offset=int(match["offset"]),
                size=int(match["size"]),
                signed=match["signed"] == "1",
                array=declared["array"] is not None or c_type.endswith("]"),
            )
            fields.append(field)
    name, number, print_fmt = values.values()
    if not name or not number.isdecimal() or len(number) > _DIGITS:
        raise ValueError("format text without name and ID")
    return TracepointFormat(
        system=system, name=name, id=int(number), fields=tuple(fields), print_fmt=print_fmt
    )


TRACING_MAGIC = b"\x17\x08\x44tracing"
"""First bytes of a trace.dat, and of a perf.data's tracing data."""
_LONGEST_STRING = 1 << 16


class Cursor:
    """Takes bounded pieces off a stretch of a file that perf or trace-cmd wrote."""

    def __init__(
        self, data: np.ndarray, start: int, end: int, refused: Callable[[int, str], Exception]
    ) -> None:
        """Begin at `start`; `refused` makes the error for what is wrong at a position."""
        self._data = data
        self._end = min(end, len(data))
        self._refused = refused
        self.position = start

    @property
    def at_end(self) -> bool:
        """Nothing is left."""
        return self.position >= self._end

    def take(self, size: int, what: str) -> bytes:
        """The next bytes."""
        self.skip(size, what)
        return self._data[self.position - size : self.position].tobytes()

    def skip(self, size: int, what: str) -> None:
        """Pass over the next bytes."""
        if not 0 <= size <= self._end - self.position:
            raise self._refused(self.position, f"the file ends inside {what}")
        self.position += size

    def number(self, layout: str, what: str) -> int:
        """The next number, by a struct's layout."""
        return int(self.numbers(layout, what)[0])

    def numbers(self, layout: str, what: str) -> tuple[int, ...]:
        """The next numbers, by a struct's layout."""
        return struct.unpack(layout, self.take(struct.calcsize(layout), what))

    def text(self, what: str) -> str:
        """The next text, up to its zero."""
        stretch = self._data[self.position : min(self._end, self.position + _LONGEST_STRING)]
        size = stretch.tobytes().find(0)
        if size < 0:
            raise self._refused(self.position, f"the file ends inside {what}")
        return self.take(size + 1, what)[:-1].decode("utf-8", "replace")

    def header_page(self) -> bytes:
        """Format of the ring buffer's pages; that of what precedes an event is passed over."""
        texts = []
        for name in ("header_page", "header_event"):
            if self.text(name) != name:
                raise self._refused(self.position, f"{name} is not where it should be")
            texts.append(self.take(self.number("<Q", name), name))
        return texts[0]

    def event_texts(self) -> list[tuple[str, bytes]]:
        """System and format text of all tracepoints but ftrace's own."""
        systems = range(self.number("<I", "number of systems"))
        names = (self.text("a system's name") for _ in systems)
        return [described for name in names for described in self.texts_of(name)]

    def texts_of(self, system: str) -> list[tuple[str, bytes]]:
        """The same of one system; ftrace's own stand in front of the others."""
        count = self.number("<I", "number of formats")
        sizes = (self.number("<Q", "a format's size") for _ in range(count))
        return [(system, self.take(size, "a format")) for size in sizes]

    def cmdlines(self) -> bytes:
        """Names of threads, one line each."""
        return self.take(self.number("<Q", "command lines' size"), "command lines")


def tracing_data(data: bytes) -> tuple[bool, list[tuple[str, bytes]]]:
    """Of a tracing-data section: records are big-endian, system and text of each format."""

    def refused(position: int, what: str) -> ValueError:
        return ValueError(f"tracing data: {what} at byte {position}")

    cursor = Cursor(np.frombuffer(data, np.uint8), 0, len(data), refused)
    if cursor.take(len(TRACING_MAGIC), "magic") != TRACING_MAGIC:
        raise ValueError("no tracing data magic")
    cursor.text("version")
    big_endian, _ = cursor.take(2, "byte order")
    cursor.skip(4, "page size")
    cursor.header_page()
    texts = [*cursor.texts_of("ftrace"), *cursor.event_texts()]
    cursor.skip(cursor.number("<I", "kallsyms size"), "kallsyms")
    cursor.skip(cursor.number("<I", "printk size"), "printk formats")
    return bool(big_endian), texts


_ENTRY = re.compile(r"\{(?P<value>[^{}\"]+),\s*\"(?P<name>\w+)\"\s*\}")
_CAST = re.compile(r"\(\s*[A-Za-z_]\w*(?:\s+[A-Za-z_]\w*)*\s*\)")
_SUFFIX = re.compile(r"(?<!\w)(0[xX][0-9a-fA-F]+|\d+)[uUlL]*(?!\w)")
_EXPRESSION = re.compile(r"(?:0[xo][0-9a-fA-F]+|\d+|<<|>>|[ ()|&~+*-])++")
_OPERATORS: dict[type, Callable[..., int]] = {
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Invert: operator.invert,
    ast.USub: operator.neg,
}


def _number(match: re.Match[str]) -> str:
    digits = match[1]
    return f"0o{digits}" if re.fullmatch("0[0-7]+", digits) else digits.lower()


def _constant(text: str) -> int:
    """The value of a C constant expression of integers, casts and a flag table's operators."""

    def value(node: ast.AST) -> int:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(operand))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                numbers = value(left), value(right)
                if not (isinstance(op, ast.LShift | ast.RShift) and not 0 <= numbers[1] < 64):
                    return _OPERATORS[type(op)](*numbers)
        raise ValueError

    plain = _SUFFIX.sub(_number, _CAST.sub("~~", " ".join(text.split())))
    try:
        if _EXPRESSION.fullmatch(plain):
            return value(ast.parse(plain.strip(), mode="eval").body)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        pass
    raise ValueError(f"flag table with an unreadable value: {text[:60]}")


_ENUM_NAME = re.compile(r"(?<!\w)___GFP_(\w{1,40})_BIT(?!\w)")
_NO_BIT = 63
"""Stands for a bit whose number is not known; no kernel has as many."""


def gfp_bits_from_print_fmt(print_fmt: str) -> dict[str, int]:
    """Names such as "__GFP_HIGH" and "GFP_KERNEL" with their masks (S2.3, S2.4).

    6.10, 6.11, 6.12 up to 6.12.10 and 6.13.0 print names of an enum where others print numbers:
    those of bits that are the same in all kernels are known, others are left out of the masks.
    """
    bits = {}
    for entry in _ENTRY.finditer(print_fmt):
        value = _ENUM_NAME.sub(_bit_number, entry["value"].strip())
        mask = _constant(value) & ((1 << _NO_BIT) - 1)
        if mask or value == entry["value"].strip():
            bits[entry["name"]] = mask
    return with_zone_names(bits)


def _bit_number(name: re.Match[str]) -> str:
    """The number of an enum's name."""
    mask = _BITS.get(f"__GFP_{name[1]}", 1 << _NO_BIT)
    return str(mask.bit_length() - 1)


def with_zone_names(bits: Mapping[str, int]) -> dict[str, int]:
    """The same and __GFP_DMA and __GFP_DMA32: some kernels name these without underscores only."""
    aliases = {f"__{name}": bits[name] for name in ("GFP_DMA", "GFP_DMA32") if name in bits}
    return {**aliases, **bits}


def gfp_names(word: int, bits: Mapping[str, int]) -> str:
    """A gfp word as the kernel prints it: names in the order of its table, then the rest."""
    if not word:
        return "none"
    names = []
    for name, mask in bits.items():
        if mask and word & mask == mask:
            names.append(name)
            word &= ~mask
    return "|".join([*names, *([hex(word)] if word else [])])


LAST_STABLE_BIT = 0x800000

_NAMES = (
    "DMA HIGHMEM DMA32 MOVABLE RECLAIMABLE HIGH IO FS ZERO - DIRECT_RECLAIM KSWAPD_RECLAIM WRITE "
    "NOWARN RETRY_MAYFAIL NOFAIL NORETRY MEMALLOC COMP NOMEMALLOC HARDWALL THISNODE ACCOUNT "
    "ZEROTAGS"
)
"""Of the bits from the lowest to LAST_STABLE_BIT, of which one means other things over time."""
_BITS = {f"__GFP_{name}": 1 << bit for bit, name in enumerate(_NAMES.split()) if name != "-"}

_COMPOSITES = {
    "__GFP_RECLAIM": 0xC00,
    "GFP_NOIO": 0xC00,
    "GFP_NOFS": 0xC40,
    "GFP_KERNEL": 0xCC0,
    "GFP_KERNEL_ACCOUNT": 0x400CC0,
    "GFP_USER": 0x100CC0,
    "GFP_HIGHUSER": 0x100CC2,
    "GFP_HIGHUSER_MOVABLE": 0x100CCA,
    "GFP_TRANSHUGE_LIGHT": 0x1C20CA,
    "GFP_TRANSHUGE": 0x1C24CA,
    "GFP_DMA": 0x1,
    "GFP_DMA32": 0x4,
}

_RECENT = {"GFP_ATOMIC": 0x820, "GFP_NOWAIT": 0x2800}
_BEFORE_6_12 = {"GFP_ATOMIC": 0xA20, "GFP_NOWAIT": 0x800, "__GFP_ATOMIC": 0x200}

_UNSTABLE = "SKIP_ZERO SKIP_KASAN SKIP_KASAN_POISON SKIP_KASAN_UNPOISON NOLOCKDEP NO_OBJ_EXT"
UNSTABLE_NAMES = frozenset(f"__GFP_{name}" for name in _UNSTABLE.split())
"""Names above `LAST_STABLE_BIT`: their bits depend on kernel version and configuration."""


def stable_gfp_bits(release: tuple[int, int] | None) -> MappingProxyType[str, int]:
    """Names and masks that mean the same in every kernel from 6.1 on, and the two that do not.

    GFP_ATOMIC and GFP_NOWAIT follow 6.1 for a release (major and minor) before 6.12, else, and
    for an unknown one, 6.12 (S2.4). The bits of `UNSTABLE_NAMES` inside composites are left out.
    """
    varying = _BEFORE_6_12 if release is not None and release < (6, 12) else _RECENT
    return MappingProxyType({**_BITS, **_COMPOSITES, **varying})


_OLD_NAMES = {
    "__GFP_WAIT": 0xC00,
    "__GFP_REPEAT": 0x4000,
    "GFP_TEMPORARY": 0xCD0,
    "GFP_IOFS": 0xC0,
}
"""Names of kernels before 4.14 whose meaning has one today; __GFP_WAIT of before 4.4 also woke
kswapd."""
_LAYOUT_4_4 = (
    "DMA HIGHMEM DMA32 MOVABLE RECLAIMABLE HIGH IO FS - NOWARN RETRY_MAYFAIL NOFAIL NORETRY "
    "MEMALLOC COMP ZERO NOMEMALLOC HARDWALL THISNODE ATOMIC ACCOUNT - DIRECT_RECLAIM - WRITE "
    "KSWAPD_RECLAIM"
)
"""Bits of 4.4 to 4.19 from the lowest, by today's names (include/linux/gfp.h of 4.4)."""
_LAYOUT_4_0 = (
    "DMA HIGHMEM DMA32 MOVABLE WAIT HIGH IO FS - NOWARN RETRY_MAYFAIL NOFAIL NORETRY MEMALLOC COMP "
    "ZERO NOMEMALLOC HARDWALL THISNODE RECLAIMABLE - - NO_KSWAPD - WRITE"
)
"""Bits of kernels before 4.4: __GFP_WAIT, and every request but NO_KSWAPD wakes kswapd."""
_HEX = re.compile(r"0[xX][0-9a-fA-F]{1,16}|[0-9a-fA-F]{4,16}")


def gfp_word(text: str, release: tuple[int, int] | None) -> tuple[int, tuple[str, ...]]:
    """A gfp word in the stable bits of 6.1 and later (S2.3), and the parts that have none.

    Args:
        text: names joined by "|" as kernels print them, numbers among them or alone.
        release: major and minor version, None if unknown: a number alone is then taken as 6.1's.
    """
    names = [name.strip() for name in text.split("|") if name.strip() not in ("none", "0", "")]
    bits = {**_OLD_NAMES, **stable_gfp_bits(release), "__GFP_ATOMIC": _BEFORE_6_12["__GFP_ATOMIC"]}
    word, left_out = 0, []
    for name in names:
        if name in bits:
            word |= bits[name]
        elif f"__{name}" in bits:  # as kernels before 4.6 print them
            word |= bits[f"__{name}"]
        elif not _HEX.fullmatch(name):
            left_out.append(name)
        elif len(names) == 1 and release is not None and release < (5, 0):
            word |= _old_layout(int(name, 16), release)
        else:
            number = int(name, 16)
            word |= number & (2 * LAST_STABLE_BIT - 1)
            if number >= 2 * LAST_STABLE_BIT:
                left_out.append(hex(number & ~(2 * LAST_STABLE_BIT - 1)))
    return word, tuple(left_out)


def _old_layout(number: int, release: tuple[int, int]) -> int:
    """The stable bits of a number of a kernel before 5.0."""
    layout = _LAYOUT_4_4 if release >= (4, 4) else _LAYOUT_4_0
    names = {name for bit, name in enumerate(layout.split()) if number >> bit & 1}
    word = sum(_BITS.get(f"__GFP_{name}", 0) for name in names)
    if release < (4, 4):
        word |= 0x400 if "WAIT" in names else 0
        word |= 0 if "NO_KSWAPD" in names else 0x800
    if "ATOMIC" in names:
        word |= _BEFORE_6_12["__GFP_ATOMIC"]
    return word
