"""Layouts of structures out of a kernel's type information, here one of a few types."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.record.kernel_types import KernelTypes

_INT, _PTR, _ARRAY, _STRUCT, _UNION, _ENUM, _TYPEDEF, _CONST = 1, 2, 3, 4, 5, 6, 8, 10


def type_information() -> bytes:
    """BTF of struct zone { long start; union { int a; long b; }; counter stat[3]; u8 bits:3; }."""
    names, types = bytearray(b"\0"), bytearray()

    def name(text: str) -> int:
        if not text:
            return 0
        names.extend(text.encode() + b"\0")
        return len(names) - len(text) - 1

    def add(
        kind: int, text: str, size: int, tail: bytes = b"", count: int = 0, flag: int = 0
    ) -> None:
        types.extend(struct.pack("<III", name(text), flag << 31 | kind << 24 | count, size) + tail)

    def member(text: str, kind: int, bits: int) -> bytes:
        return struct.pack("<III", name(text), kind, bits)

    add(_INT, "long", 8, struct.pack("<I", 1 << 24 | 64))
    add(_INT, "unsigned int", 4, struct.pack("<I", 32))
    add(_STRUCT, "counter", 8, member("value", 1, 0), 1)
    add(_TYPEDEF, "counter_t", 3)
    add(_CONST, "", 4)
    add(_ARRAY, "", 0, struct.pack("<III", 5, 2, 3))
    add(_UNION, "", 8, member("a", 2, 0) + member("b", 1, 0), 2)
    members = member("start", 1, 0) + member("", 7, 64) + member("stat", 6, 128)
    add(_STRUCT, "zone", 48, members + member("bits", 2, 3 << 24 | 320), 4, 1)
    values = struct.pack("<Ii", name("FIRST"), 0) + struct.pack("<Ii", name("LAST"), -1)
    add(_ENUM, "kinds", 4, values, 2)
    add(_PTR, "", 8)
    add(_STRUCT, "owner", 8, member("zone", 10, 0), 1)
    header = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(names))
    return header + bytes(types) + bytes(names)


def test_members_are_found_where_they_are() -> None:
    types = KernelTypes(type_information())
    assert types.size("zone") == 48
    assert types.member("zone", "start") == (0, np.dtype("<i8"))
    assert types.member("zone", "a") == (8, np.dtype("<u4"))
    assert types.member("zone", "b") == (8, np.dtype("<i8"))
    assert types.member("zone", "stat") == (16, np.dtype(("<i8", (3,))))
    assert types.member("zone", "bits") == (40, np.dtype("<u4"))
    assert types.member("owner", "zone") == (0, np.dtype("<u8"))
    assert types.enumerators("kinds") == {"FIRST": 0, "LAST": -1}


def test_what_is_not_there_is_an_error() -> None:
    types = KernelTypes(type_information())
    assert not types.has("zone", "end")
    for call, words in (
        (lambda: types.member("zone", "end"), "struct zone has no end"),
        (lambda: types.size("page"), "no struct page"),
        (lambda: types.enumerators("zone"), "no enum zone"),
        (lambda: KernelTypes(b"ELF"), "cut off"),
        (lambda: KernelTypes(b"\0" * 24), "unknown layout"),
    ):
        with pytest.raises(UsageError, match=words):
            call()
