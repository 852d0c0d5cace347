"""python3 uncap.py VMLINUX OUT: compact_gap() without its cap, in a 7.3 kernel that is already linked.

VMLINUX is an ELF image, or a bzImage with XZ. compact_gap() is inlined: min(2 << order, 32). The 32 is the operand of
a `mov`, and a `cmova` takes it where 2 << order is larger. Here it becomes 0x7fffffff, which is never taken. With OUT as
the only difference, both images boot as ELF (CONFIG_PVH). Prints the addresses.
"""

import lzma
import re
import struct
import sys
from pathlib import Path

BASE, TEXT, PLACES = 0xFFFFFFFF81000000, 0x200000, 5


def elf(data: bytes) -> bytes:
    if data[:4] == b"\x7fELF":
        return data
    start = (data[0x1F1] + 1) * 512 + struct.unpack_from("<I", data, 0x248)[0]
    return lzma.LZMADecompressor().decompress(data[start:])


def places(data: bytes) -> list[int]:
    found = []
    for shift in re.finditer(rb"[\x48\x49]\xd3[\xe0-\xe7]", data):
        begin = shift.start() - 32
        near = data[begin : shift.end() + 16]
        caps = [one.start() + 1 for one in re.finditer(rb"[\xb8-\xbf]\x20\x00\x00\x00", near)]
        taken = re.search(rb"[\x48\x49\x4c\x4d]\x0f\x47", near[32:])
        if caps and taken and re.search(rb"[\xb8-\xbf]\x02\x00\x00\x00", near):
            found.append(begin + caps[-1])
    return found


data = bytearray(elf(Path(sys.argv[1]).read_bytes()))
found = places(data)
assert len(found) == PLACES, f"{len(found)} places, not {PLACES}"
for place in found:
    print(hex(BASE + place - TEXT))
    data[place : place + 4] = (0x7FFFFFFF).to_bytes(4, "little")
Path(sys.argv[2]).write_bytes(data)
