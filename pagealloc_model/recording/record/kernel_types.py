"""Structures and functions of a kernel, from the type information that it carries (BTF).

Every distribution's kernel has it in its own memory, so neither debugging symbols nor files of the
kernel are needed. The format is `Documentation/bpf/btf.rst`.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from pagealloc_model.base.errors import UsageError

_MAGIC, _VERSION = 0xEB9F, 1
_HEADER = struct.Struct("<HBBIIIII")
_TYPE = struct.Struct("<III")
_INT, _PTR, _ARRAY, _STRUCT, _UNION, _ENUM, _TYPEDEF = 1, 2, 3, 4, 5, 6, 8
_VOLATILE, _CONST, _RESTRICT, _TYPE_TAG, _ENUM64 = 9, 10, 11, 18, 19
_FUNCTION, _PROTOTYPE, _LAST_KIND = 12, 13, _ENUM64
_NAMED = _TYPEDEF, _VOLATILE, _CONST, _RESTRICT, _TYPE_TAG
_PARAMETER = struct.Struct("<II")
# Bytes behind a type's head by kind: fixed ones, and those of each of its members.
_TAIL = {_INT: 4, _ARRAY: 12, 14: 4, 17: 4}
_TAIL_EACH = {_STRUCT: 12, _UNION: 12, _ENUM: 8, _PROTOTYPE: 8, 15: 12, _ENUM64: 12}


class _Type(NamedTuple):
    kind: int
    name: str
    size_or_type: int
    entries: int
    has_flag: bool
    tail: int


class Member(NamedTuple):
    """A member of a structure: where it begins, bytes from the structure's begin, and its type."""

    offset: int
    dtype: np.dtype


class KernelTypes:
    """The types that a kernel describes in its memory."""

    def __init__(self, data: bytes) -> None:
        """Read the type information; raises UsageError if it is damaged or of another layout."""
        try:
            self._read(data)
        except (struct.error, ValueError):
            raise UsageError("the kernel's type information (BTF) is cut off") from None

    def _read(self, data: bytes) -> None:
        magic, version, _, length, types, types_length, names, _ = _HEADER.unpack_from(data)
        if magic != _MAGIC or version != _VERSION:
            raise UsageError("the kernel's type information (BTF) has an unknown layout")
        self._data, self._names = data, length + names
        self._places = [0]
        self._by_name: dict[tuple[bool, str], int] = {}
        self._prototypes: dict[int, int] = {}
        place, end = length + types, length + types + types_length
        while place < end:
            name, info, other = _TYPE.unpack_from(data, place)
            kind, entries = info >> 24 & 31, info & 0xFFFF
            if not 0 < kind <= _LAST_KIND:
                raise UsageError(f"the kernel's type information (BTF) has the unknown kind {kind}")
            if kind == _FUNCTION:
                self._prototypes[name] = other
            if name and kind in (_STRUCT, _UNION, _ENUM, _ENUM64):
                is_enum = kind in (_ENUM, _ENUM64)
                self._by_name.setdefault((is_enum, self._name(name)), len(self._places))
            self._places.append(place)
            place += _TYPE.size + _TAIL.get(kind, 0) + _TAIL_EACH.get(kind, 0) * entries

    def size(self, structure: str) -> int:
        """Bytes of a structure."""
        return self._type(self._number(structure)).size_or_type

    def member(self, structure: str, path: str) -> Member:
        """A member by its name, or names with dots; members without a name are seen through.

        Raises:
            UsageError: the kernel has no such structure or member.
        """
        number, offset = self._number(structure), 0
        for name in path.split("."):
            found = self._find(number, name)
            if found is None:
                raise UsageError(f"this kernel's struct {structure} has no {path}")
            offset += found[0]
            number = found[1]
        return Member(offset, self._dtype(number))

    def has(self, structure: str, path: str) -> bool:
        """Tell whether a structure has a member."""
        try:
            self.member(structure, path)
        except UsageError:
            return False
        return True

    def enumerators(self, name: str) -> dict[str, int]:
        """Names of an enumeration and their numbers, those that others share left out."""
        try:
            kind, _, _, entries, _, tail = self._type(self._by_name[True, name])
        except KeyError:
            raise UsageError(f"this kernel has no enum {name}") from None
        layout = struct.Struct("<Ii" if kind == _ENUM else "<Iq")
        rows = (layout.unpack_from(self._data, tail + at * layout.size) for at in range(entries))
        return {self._name(word): value for word, value in rows}

    def parameters(self, functions: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Names of the parameters in order, of those of some functions that are described.

        A function that the compiler inlined everywhere, or whose parameters it changed, is not.

        Raises:
            UsageError: the type information is damaged.
        """
        described = {}
        try:
            for name, number in self._prototypes.items():
                if (word := self._name(name)) in functions:
                    prototype = self._type(number)
                    size = prototype.entries * _PARAMETER.size
                    rows = self._data[prototype.tail : prototype.tail + size]
                    names = (self._name(name) for name, _ in _PARAMETER.iter_unpack(rows))
                    described[word] = tuple(names)
        except (struct.error, ValueError, IndexError):
            raise UsageError("the kernel's type information (BTF) is cut off") from None
        return described

    def _number(self, structure: str) -> int:
        try:
            return self._by_name[False, structure]
        except KeyError:
            raise UsageError(f"this kernel has no struct {structure}") from None

    def _name(self, offset: int) -> str:
        start = self._names + offset
        return self._data[start : self._data.index(b"\0", start)].decode("ascii", "replace")

    def _type(self, number: int) -> _Type:
        place = self._places[number]
        name, info, size_or_type = _TYPE.unpack_from(self._data, place)
        kind, entries, has_flag = info >> 24 & 31, info & 0xFFFF, bool(info >> 31)
        return _Type(kind, self._name(name), size_or_type, entries, has_flag, place + _TYPE.size)

    def _bare(self, number: int) -> int:
        """A type without its other names and qualifiers."""
        while number and (each := self._type(number)).kind in _NAMED:
            number = each.size_or_type
        return number

    def _members(self, number: int) -> list[tuple[str, int, int]]:
        """Names, offsets in bytes and types of a structure's members."""
        each = self._type(self._bare(number))
        rows = []
        for entry in range(each.entries if each.kind in (_STRUCT, _UNION) else 0):
            name, kind, bits = _TYPE.unpack_from(self._data, each.tail + entry * _TYPE.size)
            bits = bits & 0xFFFFFF if each.has_flag else bits
            rows.append((self._name(name), bits >> 3, kind))
        return rows

    def _find(self, number: int, name: str) -> tuple[int, int] | None:
        members = self._members(number)
        for own, offset, kind in members:
            if own == name:
                return offset, kind
        for own, offset, kind in members:
            if not own and (found := self._find(kind, name)) is not None:
                return offset + found[0], found[1]
        return None

    def _dtype(self, number: int) -> np.dtype:
        """How numpy reads a type; a structure of one number is that number, others are bytes."""
        number = self._bare(number)
        each = self._type(number)
        if each.kind == _INT:
            is_signed = self._data[each.tail + 3] & 1
            return np.dtype(f"<{'i' if is_signed else 'u'}{each.size_or_type}")
        if each.kind == _PTR:
            return np.dtype("<u8")
        if each.kind in (_ENUM, _ENUM64):
            return np.dtype(f"<u{each.size_or_type}")
        if each.kind == _ARRAY:
            of, _, count = _TYPE.unpack_from(self._data, each.tail)
            return np.dtype((self._dtype(of), (count,)))
        members = self._members(number)
        if len(members) == 1:
            return self._dtype(members[0][2])
        return np.dtype((np.void, each.size_or_type))
