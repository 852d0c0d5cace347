import struct
from pathlib import Path

import pytest

from pagealloc_model.recording.record.probes import function_parameters

INT, FUNCTION, PROTOTYPE, STRUCT = 1, 12, 13, 4


class Types:
    """Kernel type data, made type by type."""

    def __init__(self) -> None:
        self.texts = b"\0"
        self.types = b""
        self.count = 0

    def text(self, name: str) -> int:
        self.texts += name.encode() + b"\0"
        return len(self.texts) - len(name) - 1

    def add(self, kind: int, name: str = "", members: int = 0, other: int = 0) -> int:
        info = kind << 24 | members
        self.types += struct.pack("<III", self.text(name) if name else 0, info, other)
        self.count += 1
        return self.count

    def function(self, name: str, *parameters: str) -> None:
        number = self.add(PROTOTYPE, members=len(parameters))
        for parameter in parameters:
            self.types += struct.pack("<II", self.text(parameter), 1)
        self.add(FUNCTION, name, other=number)

    def data(self) -> bytes:
        sizes = (0, len(self.types), len(self.types), len(self.texts))
        return struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, *sizes) + self.types + self.texts


def some_types() -> Types:
    types = Types()
    types.add(INT, "int", other=4)
    types.types += bytes(4)
    types.add(STRUCT, "zone", members=2, other=16)
    types.types += bytes(24)
    types.function("drain_pages_zone", "cpu", "zone")
    types.function("other", "a")
    return types


def test_names_of_the_functions_asked_for() -> None:
    found = function_parameters(some_types().data(), {"drain_pages_zone", "inlined"})
    assert found == {"drain_pages_zone": ("cpu", "zone")}


def test_damaged_data_are_refused() -> None:
    whole = some_types().data()
    for data in (b"", whole[:40], b"\0\0" + whole[2:]):
        with pytest.raises(ValueError, match="kernel type data"):
            function_parameters(data, {"drain_pages_zone"})
    types = some_types()
    types.add(30)
    with pytest.raises(ValueError, match="unknown kind 30"):
        function_parameters(types.data(), {"drain_pages_zone"})


def test_this_kernel() -> None:
    file = Path("/sys/kernel/btf/vmlinux")
    if not file.exists():
        pytest.skip("this kernel publishes no type data")
    found = function_parameters(file.read_bytes(), {"vfs_read"})
    assert found == {"vfs_read": ("file", "buf", "count", "pos")}
