"""A kernel's memory, read with drgn: of this machine, of a stopped guest, or of a crash dump."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.record.kernel_types import KernelTypes, Member

_NO_DRGN = (
    "drgn is not installed, without which a kernel's memory is not read; install the extra `guest`"
)


Place = tuple[int, int]
"""An address and a number of bytes from there on."""


class KernelMemory:
    """A kernel's memory with its symbols and types.

    Types and symbols come from the memory itself (BTF and kallsyms), so no debugging symbols are
    needed; the kernel must be 6.0 or newer, with CONFIG_DEBUG_INFO_BTF and CONFIG_KALLSYMS_ALL.
    """

    def __init__(self, source: str, open_program: Callable[[Any], None]) -> None:
        """Open a memory.

        Args:
            source: what it is: live, guest or dump.
            open_program: gives drgn's program its memory.

        Raises:
            UsageError: drgn is not installed, or the memory cannot be read.
        """
        try:
            import drgn
            from drgn.helpers.linux import kallsyms
        except ImportError:
            raise UsageError(_NO_DRGN) from None
        self.source = source
        self.kept: dict[Place, bytes | None] | None = None
        self._fault = drgn.FaultError
        self._program = drgn.Program()
        try:
            open_program(self._program)
            index = kallsyms.load_vmlinux_kallsyms(self._program)
            self._program.register_symbol_finder("kallsyms", index, enable_index=0)
            start, stop = self.address("__start_BTF"), self.address("__stop_BTF")
            self.types = KernelTypes(self.read(start, stop - start))
        except (drgn.FaultError, LookupError, OSError, ValueError) as error:
            why = " ".join(str(error).split())
            raise UsageError(f"the memory of the {source} kernel cannot be read: {why}") from None
        self._offsets = self._offsets_of_cpus()

    @classmethod
    def of_this_machine(cls) -> KernelMemory:
        """The running kernel's, through /proc/kcore."""
        return cls("live", lambda program: program.set_kernel())

    @classmethod
    def of_guest(cls, socket: Path) -> KernelMemory:
        """A guest's, over qemu's QMP socket; with `-device vmcoreinfo` and FW_CFG_SYSFS in it."""
        return cls("guest", lambda program: program.set_qemu_qmp(str(socket)))

    @classmethod
    def of_dump(cls, file: Path) -> KernelMemory:
        """That of a crash dump."""
        return cls("dump", lambda program: program.set_core_dump(str(file)))

    def address(self, symbol: str) -> int:
        """Address of a symbol; raises LookupError if the kernel has none of this name."""
        return int(self._program.symbol(symbol).address)

    def has(self, symbol: str) -> bool:
        """Tell whether the kernel has a symbol."""
        try:
            self.address(symbol)
        except LookupError:
            return False
        return True

    def kept_from(self, places: Iterable[Place]) -> KernelMemory:
        """A copy that keeps what it has read, beginning with these places, one right after another.

        What a copy without places has read (`kept`) are the places of the next one: these are
        read in the shortest time, and what they say is worked out afterwards.
        """
        copied = copy.copy(self)
        copied.kept = {place: self.read_or_none(*place) for place in places}
        return copied

    def read(self, address: int, size: int) -> bytes:
        """Bytes from an address on."""
        if self.kept is None:
            return bytes(self._program.read(address, size))
        content = self.read_or_none(address, size)
        if content is None:
            raise self._fault("nothing is mapped", address)
        return content

    def read_or_none(self, address: int, size: int) -> bytes | None:
        """The same, None where nothing is mapped."""
        place = (address, size)
        if self.kept is not None and place in self.kept:
            return self.kept[place]
        try:
            content = bytes(self._program.read(address, size))
        except self._fault:
            content = None
        if self.kept is not None:
            self.kept[place] = content
        return content

    def number(self, address: int, dtype: str = "<u8") -> int:
        """A number at an address."""
        kind = np.dtype(dtype)
        return int(np.frombuffer(self.read(address, kind.itemsize), kind)[0])

    def variable(self, symbol: str, dtype: str = "<u8") -> int:
        """Value of a variable of the kernel."""
        return self.number(self.address(symbol), dtype)

    def text(self, address: int, most: int = 64) -> str:
        """A string at an address."""
        return self.read(address, most).split(b"\0")[0].decode("ascii", "replace")

    def at(self, structure: str, address: int) -> Structure:
        """A structure at an address."""
        return Structure(self, structure, address)

    def per_cpu(self, pointer: int) -> list[int]:
        """What a per-CPU pointer is on each possible CPU."""
        return [(pointer + offset) % (1 << 64) for offset in self._offsets]

    def entries(self, head: int) -> Iterator[int]:
        """Addresses of the nodes of a `struct hlist_head`."""
        node = self.number(head)
        while node:
            yield node
            node = self.number(node)

    def bits(self, address: int, size: int) -> list[int]:
        """Numbers of the bits that are set among some bytes."""
        words = np.frombuffer(self.read(address, size), np.uint8)
        return [int(bit) for bit in np.flatnonzero(np.unpackbits(words, bitorder="little"))]

    def _offsets_of_cpus(self) -> list[int]:
        count = self.variable("nr_cpu_ids", "<u4")
        raw = self.read(self.address("__per_cpu_offset"), 8 * count)
        return [int(offset) for offset in np.frombuffer(raw, "<u8")]


class Structure:
    """One structure in a kernel's memory, read once as a whole."""

    def __init__(self, memory: KernelMemory, name: str, address: int) -> None:
        self.name, self.address = name, address
        self._types = memory.types
        self._content = memory.read(address, memory.types.size(name))

    def values(self, path: str) -> np.ndarray:
        """A member's numbers: an array as int64, of no dimension for a single one."""
        member = self.member(path)
        raw = self._content[member.offset : member.offset + member.dtype.itemsize]
        base, shape = member.dtype.base, member.dtype.shape
        return np.frombuffer(raw, base).reshape(shape).astype(np.int64)

    def number(self, path: str, missing: int | None = None) -> int:
        """A member that is a number; `missing`, if given, where the kernel has no such member."""
        if missing is not None and not self._types.has(self.name, path):
            return missing
        return int(self.values(path))

    def pointer(self, path: str) -> int:
        """A member that is an address."""
        return self.number(path) % (1 << 64)

    def member(self, path: str) -> Member:
        """Where a member is."""
        return self._types.member(self.name, path)
