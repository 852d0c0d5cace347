"""Settings: where each is made, that it is read back, and the field that stands for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.studies.experiments.inside import apply, boot_words, setting_file
from pagealloc_model.studies.experiments.plan import policy_field

DEFRAG = "/sys/kernel/mm/transparent_hugepage/defrag"


def file_of(root: Path, name: str, text: str) -> Path:
    file = setting_file(name, root)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("name", "file", "field"),
    [
        ("vm.min_free_kbytes", "proc/sys/vm/min_free_kbytes", "min_free_kbytes"),
        ("vm.swappiness", "proc/sys/vm/swappiness", ""),
        (DEFRAG, DEFRAG[1:], "thp_defrag"),
        ("boot:page_owner", "proc/cmdline", ""),
    ],
)
def test_places(name: str, file: str, field: str) -> None:
    assert setting_file(name, Path("/r")) == Path("/r") / file
    assert policy_field(name) == field


@pytest.mark.parametrize("name", ["min_free_kbytes", "", "boot:", "/proc/sys/vm/x", "vm. x"])
def test_what_is_no_place_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is no setting; name a sysctl"):
        setting_file(name)


def test_settings_are_written_and_read_back(tmp_path: Path) -> None:
    file = file_of(tmp_path, "vm.min_free_kbytes", "1024\n")
    file_of(tmp_path, "boot:psi", "quiet psi=1 ro\n")
    apply({"vm.min_free_kbytes": "4096", "boot:psi": "1"}, tmp_path)
    assert file.read_text() == "4096"


def test_a_value_that_is_not_kept_is_an_error(tmp_path: Path) -> None:
    file_of(tmp_path, "boot:psi", "quiet ro\n")
    with pytest.raises(UsageError, match="boot:psi=1: this kernel keeps 'quiet ro'"):
        apply({"boot:psi": "1"}, tmp_path)


def test_a_choice_of_words_is_the_one_in_brackets(tmp_path: Path) -> None:
    file_of(tmp_path, DEFRAG, "x")
    apply({DEFRAG: "always"}, tmp_path)
    # a file of sysfs shows all choices, which this one does not
    assert setting_file(DEFRAG, tmp_path).read_text() == "always"


def test_a_setting_that_the_kernel_lacks_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"vm\.none=1: cannot be set in this kernel"):
        apply({"vm.none": "1"}, tmp_path)


def test_boot_parameters_are_told_apart() -> None:
    assert boot_words({"vm.swappiness": "1", "boot:psi": "1"}) == ["psi=1"]
