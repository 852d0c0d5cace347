"""`make docs`: the site holds every page and notebook, and a broken link ends the build."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pagealloc_model.cli.main import COMMANDS
from pagealloc_model.policy.policy import policy_settings

BUILD_LIMIT_S = 300


def files_of(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}


def run_build(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=checkout,
        timeout=BUILD_LIMIT_S,
    )


@pytest.fixture(scope="module")
def site(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "out"
    before = files_of(checkout / "docs") | files_of(checkout / "notebooks")
    done = run_build(checkout, "docs/site/build_site.py", str(out))
    assert done.returncode == 0, done.stderr
    assert files_of(checkout / "docs") | files_of(checkout / "notebooks") == before
    return out


def words_of(site: Path, page: str) -> str:
    text = re.sub(r"<[^>]+>", "", (site / "html" / page).read_text())
    return " ".join(html.unescape(text).split())


def test_every_page_and_notebook_is_there(checkout: Path, site: Path) -> None:
    sources = [*checkout.glob("docs/*.md"), *checkout.glob("notebooks/*.ipynb")]
    pages = {str(path.relative_to(checkout).with_suffix(".html")) for path in sources}
    assert len(pages) > 20
    front = (site / "html" / "index.html").read_text()
    for page in [*pages, "CONTRIBUTING.html"]:
        assert (site / "html" / page).exists(), page
        assert f'href="{page}"' in front, page


def test_policy_fields_are_described(site: Path) -> None:
    words = words_of(site, "docs/policy_fields.html")
    for name, each in policy_settings().items():
        assert name in words
        for part in ("kernel_name", "unit", "meaning", "source"):
            assert " ".join(each.metadata[part].split()) in words, (name, part)


def test_every_command_has_its_help(site: Path) -> None:
    words = words_of(site, "docs/command_line.html")
    assert words.count("usage: pagealloc") == 1 + len(COMMANDS)


def test_citations_lead_to_their_sections(site: Path) -> None:
    fields_page = (site / "html" / "docs" / "policy_fields.html").read_text()
    assert 'href="page_allocator.html#s7-2">S7.2</a>' in fields_page
    assert 'id="s7-2"' in (site / "html" / "docs" / "page_allocator.html").read_text()


def test_what_leads_nowhere_is_an_error(checkout: Path, site: Path) -> None:
    """Sphinx runs again on the gathered pages, of which one has got links to nothing."""
    page = site / "source" / "docs" / "install.md"
    broken = "[a page](nowhere.md) [a place](glossary.md#no-such-word) As S77.7 says."
    page.write_text(f"{page.read_text()}\n{broken}\n")
    again = (
        "import sys; from pathlib import Path; sys.path.insert(0, 'docs/site'); "
        f"import build_site; sys.exit(build_site.build(Path({str(site)!r})))"
    )
    done = run_build(checkout, "-c", again)
    assert done.returncode != 0
    for nothing in ("nowhere.md", "no-such-word", "S77.7"):
        assert nothing in done.stderr
