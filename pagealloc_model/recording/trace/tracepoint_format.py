"""The `format` text of one tracepoint: where each field lies in the raw record (T1.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
    """Parse the text of `events/SYSTEM/NAME/format`.

    Raises:
        ValueError: no name, no ID, or a `field:` line that is not understood.
    """
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
