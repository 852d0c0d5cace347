"""Parameter names of kernel functions, from the type data (BTF) of the running kernel."""

from __future__ import annotations

import struct
from collections.abc import Collection

_MAGIC = 0xEB9F
_HEADER = struct.Struct("<HBBIIIII")
_TYPE = struct.Struct("<III")
_PARAMETER = struct.Struct("<II")
_FUNCTION, _PROTOTYPE = 12, 13
# Bytes behind a type's head by kind: fixed ones, and those of each of its members.
_FIXED = {1: 4, 3: 12, 14: 4, 17: 4}
_EACH = {4: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}
_LAST_KIND = 19


def function_parameters(btf: bytes, functions: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Parameter names by function, in order, for those of `functions` that the data describe.

    A function that the compiler inlined everywhere, or whose parameters it changed, is not
    described.

    Args:
        btf: content of /sys/kernel/btf/vmlinux.
        functions: names to look for.

    Raises:
        ValueError: the data are cut short or of an unknown layout.
    """
    try:
        return _parameters(btf, frozenset(functions))
    except (struct.error, IndexError):
        raise ValueError("kernel type data are cut short") from None


def _parameters(btf: bytes, functions: frozenset[str]) -> dict[str, tuple[str, ...]]:
    magic, _, _, header, type_start, type_size, text_start, text_size = _HEADER.unpack_from(btf)
    if magic != _MAGIC:
        raise ValueError("no kernel type data")
    texts = btf[header + text_start : header + text_start + text_size]
    prototypes: dict[int, int] = {}
    places = [0]
    position, end = header + type_start, header + type_start + type_size
    while position < end:
        name, info, other = _TYPE.unpack_from(btf, position)
        kind, members = info >> 24 & 0x1F, info & 0xFFFF
        if not 0 < kind <= _LAST_KIND:
            raise ValueError(f"kernel type data hold the unknown kind {kind}")
        if kind == _FUNCTION:
            prototypes[name] = other
        places.append(position)
        position += _TYPE.size + _FIXED.get(kind, 0) + _EACH.get(kind, 0) * members
    return {
        text: _prototype(btf, places[number], texts)
        for name, number in prototypes.items()
        if (text := _text(texts, name)) in functions
    }


def _prototype(btf: bytes, place: int, texts: bytes) -> tuple[str, ...]:
    _, info, _ = _TYPE.unpack_from(btf, place)
    if info >> 24 & 0x1F != _PROTOTYPE:
        raise ValueError("a function of the kernel type data has no prototype")
    first = place + _TYPE.size
    return tuple(
        _text(texts, _PARAMETER.unpack_from(btf, first + index * _PARAMETER.size)[0])
        for index in range(info & 0xFFFF)
    )


def _text(texts: bytes, offset: int) -> str:
    return texts[offset : texts.index(b"\0", offset)].decode("utf-8", "replace")
