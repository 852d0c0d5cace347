"""What doctor says of guests."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from pagealloc_model.base.errors import UsageError
from pagealloc_model.studies.experiments import guest as checks_module
from pagealloc_model.studies.experiments.guest import guest_checks, kernel_options, shares_by_9p

SERVES = "\n".join(
    f"CONFIG_{name}=y"
    for name in ("9P_FS", "TRACING", "PERF_EVENTS", "PROC_PAGE_MONITOR", "KPROBE_EVENTS")
)
Packed = Callable[[bytes], bytes]


def kernel(file: Path, config: str, pack: Packed = gzip.compress) -> Path:
    """A file that carries its configuration as a bzImage does."""
    carried = b"code IKCFG_ST" + gzip.compress(config.encode()) + b"IKCFG_ED code"
    file.write_bytes(b"boot \x1f\x8b\x08 code" + pack(carried) + b"the end")
    return file


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, zstandard.compress])
def test_a_kernel_tells_its_options(pack: Packed, tmp_path: Path) -> None:
    image = kernel(tmp_path / "bzImage", "CONFIG_A=y\nCONFIG_B=m\n# CONFIG_C is not set\n", pack)
    assert kernel_options(image, tmp_path) == {"A", "B"}


def test_options_are_read_beside_a_kernel_too(tmp_path: Path) -> None:
    (tmp_path / "vmlinuz-1").write_bytes(b"code")
    assert kernel_options(tmp_path / "vmlinuz-1", tmp_path) is None
    (tmp_path / "config-1").write_text("CONFIG_A=y\n")
    assert kernel_options(tmp_path / "vmlinuz-1", tmp_path) == {"A"}


def test_what_kernels_lack_is_told(tmp_path: Path) -> None:
    images = (
        kernel(tmp_path / "good", SERVES),
        kernel(tmp_path / "cloud", SERVES.replace("9P_FS", "NET")),
        kernel(tmp_path / "bare", SERVES.replace("KPROBE_EVENTS", "NET")),
        tmp_path / "none",
    )
    found = {check.name: check for check in guest_checks(images, tmp_path)}
    assert found["kernel good"].found == "serves as a guest"
    assert found["kernel cloud"].found == "neither 9p nor virtiofs"
    assert "CONFIG_9P_FS or CONFIG_VIRTIO_FS" in found["kernel cloud"].todo
    assert found["kernel bare"].found == "without CONFIG_KPROBE_EVENTS"
    assert found["kernel none"].found == "cannot be read"


def test_files_come_over_9p_unless_there_is_virtiofs_alone(tmp_path: Path) -> None:
    (tmp_path / "unknown").write_bytes(b"code")
    assert shares_by_9p(tmp_path / "unknown")
    assert shares_by_9p(kernel(tmp_path / "both", f"{SERVES}\nCONFIG_VIRTIO_FS=y"))
    assert not shares_by_9p(kernel(tmp_path / "one", "CONFIG_VIRTIO_FS=m\n"))
    with pytest.raises(UsageError, match="has neither 9p nor virtiofs, so it cannot be a guest"):
        shares_by_9p(kernel(tmp_path / "none", "CONFIG_NET=y\n"))


def test_what_programs_are_missing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks_module, "find_virtme", lambda: None)
    monkeypatch.setattr(checks_module.shutil, "which", lambda name, **_: None)
    found = {check.name: check for check in guest_checks((), tmp_path)}
    assert found["virtme-ng"].todo == "pip install '.[guest]' in the checkout"
    assert found["busybox"].todo == "install busybox (Debian: busybox-static)"
    assert found["guest kernel"].cost == "an experiment has to name one"
    assert all(check.cost and not check.blocks for check in found.values() if check.name != "KVM")
