"""Format data of tracepoints: fields of raw records, and names of gfp bits (T1.1, S2.3)."""

from __future__ import annotations

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
_CHAR = re.compile(r"\bchar\b")
_DECLARATION = re.compile(r"^(?P<type>.*?)(?P<name>\w+)\s*(?P<array>\[[^\]]*\])?\s*$")


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field of a tracepoint's raw record.

    Attributes:
        name: the field's own name.
        type: its C type as declared, without the array part.
        offset: bytes from the start of the raw data.
        size: bytes.
        signed: whether an integer field is signed.
        array: whether it is declared as an array.
    """

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
    def is_common(self) -> bool:
        """Whether every tracepoint has this field."""
        return self.name.startswith("common_")

    @property
    def is_integer(self) -> bool:
        """Whether the field is one number of 1, 2, 4 or 8 bytes."""
        return not self.array and not self.is_dynamic and self.size in (1, 2, 4, 8)

    @property
    def is_dynamic(self) -> bool:
        """Whether the field only points at data placed elsewhere in the record."""
        return self.type.startswith(("__data_loc", "__rel_loc"))

    @property
    def is_string(self) -> bool:
        """Whether the field is text: a char array in place, or a dynamic one."""
        return bool(_CHAR.search(self.type)) and (self.array or self.is_dynamic)


@dataclass(frozen=True, kw_only=True)
class TracepointFormat:
    """One tracepoint as the recording's format data describe it.

    Attributes:
        system: such as "kmem".
        name: such as "mm_page_alloc".
        id: the number that perf_event_attr.config carries.
        fields: all fields, common ones first, in file order.
        print_fmt: the text after `print fmt:`, "" if there is none.
    """

    system: str
    name: str
    id: int
    fields: tuple[Field, ...]
    print_fmt: str

    @property
    def event_name(self) -> str:
        """The name perf uses, such as "kmem:mm_page_alloc"."""
        return f"{self.system}:{self.name}"

    @property
    def own_fields(self) -> tuple[Field, ...]:
        """The fields other than the common_ ones."""
        return tuple(field for field in self.fields if not field.is_common)

    @property
    def column_fields(self) -> tuple[Field, ...]:
        """The fields that become columns of a table: numbers and texts, no arrays of numbers."""
        return tuple(field for field in self.own_fields if field.is_integer or field.is_string)

    def field(self, name: str) -> Field | None:
        """The field of that name, or None."""
        return next((field for field in self.fields if field.name == name), None)


def parse_format(system: str, text: str) -> TracepointFormat:
    """Parse the text of `events/SYSTEM/NAME/format`."""
    name = _line_value(text, "name:")
    number = _line_value(text, "ID:")
    if not name or not number.isdecimal():
        raise ValueError("format text without name and ID")
    fields = tuple(
        _parse_field(line) for line in text.splitlines() if line.lstrip().startswith("field:")
    )
    return TracepointFormat(
        system=system,
        name=name,
        id=int(number),
        fields=fields,
        print_fmt=_line_value(text, "print fmt:"),
    )


def _line_value(text: str, key: str) -> str:
    for line in text.splitlines():
        if line.startswith(key):
            return line[len(key) :].strip()
    return ""


def _parse_field(line: str) -> Field:
    match = _FIELD.match(line)
    declaration = _DECLARATION.match(match["declaration"]) if match else None
    if match is None or declaration is None:
        raise ValueError(f"format text with an unreadable field: {line.strip()[:80]}")
    c_type = declaration["type"].strip()
    return Field(
        name=declaration["name"],
        type=c_type,
        offset=int(match["offset"]),
        size=int(match["size"]),
        signed=match["signed"] == "1",
        array=declaration["array"] is not None or c_type.endswith("]"),
    )


TRACING_MAGIC = b"\x17\x08\x44tracing"
"""What a trace.dat begins with, and a perf.data's tracing data."""


@dataclass(frozen=True, kw_only=True)
class TracingData:
    """What the tracing-data section holds, enough to write it again.

    Attributes:
        version: such as "0.6".
        big_endian: byte order of the raw records.
        long_size: bytes of the recorded kernel's `unsigned long`.
        page_size: bytes.
        header_page: text of the ring buffer's page header format.
        header_event: text of the ring buffer's event header format.
        event_texts: (system, format text) of each tracepoint, in file order.
        printk_formats: addresses and texts of the kernel's trace_printk formats.
        formats: tracepoint id -> its parsed format.
    """

    version: str
    big_endian: bool
    long_size: int
    page_size: int
    header_page: bytes
    header_event: bytes
    event_texts: tuple[tuple[str, bytes], ...]
    printk_formats: bytes
    formats: dict[int, TracepointFormat]


def parse_tracing_data(data: bytes) -> TracingData:
    """Parse a tracing-data section."""

    def refused(position: int, what: str) -> ValueError:
        return ValueError(f"tracing data: {what} at byte {position}")

    cursor = Cursor(np.frombuffer(data, np.uint8), 0, len(data), refused)
    if cursor.take(len(TRACING_MAGIC), "magic") != TRACING_MAGIC:
        raise ValueError("no tracing data magic")
    version = cursor.text("version")
    big_endian, long_size = cursor.take(2, "byte order")
    page_size = cursor.number("<I", "page size")
    header_page, header_event = cursor.header_texts()
    event_texts = [*cursor.ftrace_texts(), *cursor.event_texts()]
    cursor.take(cursor.number("<I", "kallsyms size"), "kallsyms")
    printk_formats = cursor.take(cursor.number("<I", "printk size"), "printk formats")
    formats = [parse_format(system, text.decode("latin-1")) for system, text in event_texts]
    return TracingData(
        version=version,
        big_endian=bool(big_endian),
        long_size=long_size,
        page_size=page_size,
        header_page=header_page,
        header_event=header_event,
        event_texts=tuple(event_texts),
        printk_formats=printk_formats,
        formats={tracepoint.id: tracepoint for tracepoint in formats},
    )


_LONGEST_STRING = 1 << 16


class Cursor:
    """Takes bounded pieces off a stretch of a file that perf or trace-cmd wrote.

    Args:
        data: uint8, holds the stretch.
        start: where it begins.
        end: first byte behind it.
        refused: makes the error for what is wrong at a position.

    Attributes:
        position: of the next piece in `data`.
    """

    def __init__(
        self, data: np.ndarray, start: int, end: int, refused: Callable[[int, str], Exception]
    ) -> None:
        self._data = data
        self._end = min(end, len(data))
        self._refused = refused
        self.position = start

    @property
    def at_end(self) -> bool:
        """Whether nothing is left."""
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
        ends = np.flatnonzero(stretch == 0)
        if not len(ends):
            raise self._refused(self.position, f"the file ends inside {what}")
        return self.take(int(ends[0]) + 1, what)[:-1].decode("utf-8", "replace")

    def header_texts(self) -> tuple[bytes, bytes]:
        """Formats of the ring buffer's pages and of what precedes an event."""
        texts = []
        for name in ("header_page", "header_event"):
            if self.text(name) != name:
                raise self._refused(self.position, f"{name} is not where it should be")
            texts.append(self.take(self.number("<Q", name), name))
        return texts[0], texts[1]

    def ftrace_texts(self) -> list[tuple[str, bytes]]:
        """System and format text of ftrace's own events."""
        return self._texts_of("ftrace")

    def event_texts(self) -> list[tuple[str, bytes]]:
        """System and format text of all tracepoints."""
        systems = range(self.number("<I", "number of systems"))
        return [each for _ in systems for each in self._texts_of(self.text("a system's name"))]

    def _texts_of(self, system: str) -> list[tuple[str, bytes]]:
        count = self.number("<I", "number of formats")
        sizes = (self.number("<Q", "a format's size") for _ in range(count))
        return [(system, self.take(size, "a format")) for size in sizes]


_TOKEN = re.compile(
    r"\s*(?:(?P<number>0[xX][0-9a-fA-F]+|\d+)[uUlL]*|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<operator><<|>>|[()|&~+\-*]))"
)
_ENTRY = re.compile(r"\{(?P<value>[^{}\"]+),\s*\"(?P<name>\w+)\"\s*\}")
_PRECEDENCE = {"|": 1, "&": 2, "<<": 3, ">>": 3, "+": 4, "-": 4, "*": 5}
_DEEPEST = 200


def gfp_bits_from_print_fmt(print_fmt: str) -> dict[str, int]:
    """Names such as "__GFP_HIGH" and "GFP_KERNEL" with their masks (S2.3, S2.4)."""
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
    """The gfp word that prints as `text`, such as "GFP_KERNEL|__GFP_ZERO" or "0x1000000"."""
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


LAST_STABLE_BIT = 0x800000

_BITS = {
    "__GFP_DMA": 0x1,
    "__GFP_HIGHMEM": 0x2,
    "__GFP_DMA32": 0x4,
    "__GFP_MOVABLE": 0x8,
    "__GFP_RECLAIMABLE": 0x10,
    "__GFP_HIGH": 0x20,
    "__GFP_IO": 0x40,
    "__GFP_FS": 0x80,
    "__GFP_ZERO": 0x100,
    "__GFP_DIRECT_RECLAIM": 0x400,
    "__GFP_KSWAPD_RECLAIM": 0x800,
    "__GFP_RECLAIM": 0xC00,
    "__GFP_WRITE": 0x1000,
    "__GFP_NOWARN": 0x2000,
    "__GFP_RETRY_MAYFAIL": 0x4000,
    "__GFP_NOFAIL": 0x8000,
    "__GFP_NORETRY": 0x10000,
    "__GFP_MEMALLOC": 0x20000,
    "__GFP_COMP": 0x40000,
    "__GFP_NOMEMALLOC": 0x80000,
    "__GFP_HARDWALL": 0x100000,
    "__GFP_THISNODE": 0x200000,
    "__GFP_ACCOUNT": 0x400000,
    "__GFP_ZEROTAGS": 0x800000,
}

_COMPOSITES = {
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

UNSTABLE_NAMES = frozenset(
    {
        "__GFP_SKIP_ZERO",
        "__GFP_SKIP_KASAN",
        "__GFP_SKIP_KASAN_POISON",
        "__GFP_SKIP_KASAN_UNPOISON",
        "__GFP_NOLOCKDEP",
        "__GFP_NO_OBJ_EXT",
    }
)
"""Names above `LAST_STABLE_BIT`: their bits depend on kernel version and configuration."""


def stable_gfp_bits(release: tuple[int, int] | None) -> MappingProxyType[str, int]:
    """Names and masks that mean the same in every kernel from 6.1 on, and the two that do not.

    GFP_ATOMIC and GFP_NOWAIT follow 6.1 for a release before 6.12, else 6.12 (S2.4). The bits of
    `UNSTABLE_NAMES` inside composites are left out.

    Args:
        release: major and minor kernel version, None if unknown.
    """
    varying = _BEFORE_6_12 if release is not None and release < (6, 12) else _RECENT
    return MappingProxyType({**_BITS, **_COMPOSITES, **varying})
