"""/proc/kallsyms: which function of the kernel an address lies in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pagealloc_model.base.compressed import lines_of
from pagealloc_model.recording.proc.lines import malformed

_TEXT_TYPES = frozenset("tTwW")
_LARGEST_FUNCTION = 1 << 20
_MOST_FUNCTIONS = 1 << 22


@dataclass(frozen=True, eq=False)
class KernelSymbols:
    """The kernel's functions, by address.

    Attributes:
        addresses: uint64, ascending.
        names: of the functions there; of several at one address the last one listed.
    """

    addresses: np.ndarray
    names: tuple[str, ...]

    def name_at(self, address: int) -> str:
        """The function an address lies in, the address itself where none is near before it."""
        index = int(np.searchsorted(self.addresses, np.uint64(address), "right")) - 1
        if index < 0 or address - int(self.addresses[index]) >= _LARGEST_FUNCTION:
            return f"{address:#x}"
        return self.names[index]


def read_kallsyms(path: str | Path) -> KernelSymbols | None:
    """The functions of a copy of /proc/kallsyms, plain or packed; None if it hides the addresses.

    Raises:
        RecordingError: the file cannot be read, or is none.
    """
    functions: dict[int, str] = {}
    for number, line in enumerate(lines_of(path), 1):
        words = line.split()
        try:
            address, kind, name = int(words[0], 16), words[1], words[2]
        except (ValueError, IndexError):
            raise malformed(path, number, "no address, type and name") from None
        if kind in _TEXT_TYPES and 0 < address < 1 << 64:
            functions[address] = name
            if len(functions) > _MOST_FUNCTIONS:
                raise malformed(path, number, f"more than {_MOST_FUNCTIONS} functions")
    if not functions:
        return None
    addresses = sorted(functions)
    return KernelSymbols(
        np.array(addresses, np.uint64), tuple(functions[address] for address in addresses)
    )
