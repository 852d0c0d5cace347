"""What a kernel image was built with, and how it can see the host's files."""

from __future__ import annotations

import gzip
import lzma
import re
import zlib
from collections.abc import Callable
from pathlib import Path

from pagealloc_model.base.errors import UsageError

NINE_P, VIRTIO_FS = SHARES = ("9P_FS", "VIRTIO_FS")
"""Options of a kernel that can have the host's files as its root: one of them is needed."""

_CONFIG_BEGINS, _CONFIG_ENDS = b"IKCFG_ST", b"IKCFG_ED"


def shares_by_9p(image: Path) -> bool:
    """Whether the host's files are to come over 9p; if not, over virtiofs.

    Raises:
        UsageError: the kernel is known to have neither.
    """
    options = kernel_options(image)
    if options is None or NINE_P in options:
        return True
    if VIRTIO_FS in options:
        return False
    raise UsageError(
        f"{image}: has neither 9p nor virtiofs, so it cannot be a guest; "
        f"build it with {' or '.join(f'CONFIG_{each}' for each in SHARES)}"
    )


def kernel_options(image: Path, boot: Path = Path("/boot")) -> set[str] | None:
    """Options that a kernel was built with, as y or m; None where nothing tells.

    Args:
        image: a bzImage, with its configuration inside (CONFIG_IKCONFIG) or beside it.
        boot: where configurations of installed kernels are.
    """
    beside = [folder / image.name.replace("vmlinuz", "config") for folder in (image.parent, boot)]
    text = next((each.read_text() for each in beside if each != image and each.is_file()), None)
    text = text if text is not None else _built_in(image.read_bytes())
    if text is None:
        return None
    return set(re.findall(r"^CONFIG_(\w+)=[ym]$", text, re.MULTILINE))


def _built_in(content: bytes) -> str | None:
    """The configuration inside a kernel, whichever way it is compressed."""
    for unpack, magic in _PACKED:
        for found in re.finditer(re.escape(magic), content):
            begin = found.start()
            try:
                unpacked = unpack(content[begin:])
            except (zlib.error, lzma.LZMAError, ValueError, EOFError):
                continue
            start = unpacked.find(_CONFIG_BEGINS)
            if start >= 0:
                end = unpacked.find(_CONFIG_ENDS, start)
                return gzip.decompress(unpacked[start + len(_CONFIG_BEGINS) : end]).decode()
    return None


def _zstd(content: bytes) -> bytes:
    import zstandard

    try:
        return zstandard.ZstdDecompressor().decompressobj().decompress(content)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None


_PACKED: tuple[tuple[Callable[[bytes], bytes], bytes], ...] = (
    (lambda content: zlib.decompressobj(31).decompress(content), b"\x1f\x8b\x08"),
    (lambda content: lzma.LZMADecompressor().decompress(content), b"\xfd7zXZ\x00"),
    (_zstd, b"\x28\xb5\x2f\xfd"),
)
"""How to unpack a kernel, and what what is packed so begins with."""
