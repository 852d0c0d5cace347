"""Build the documentation as a site: pages, notebooks, and references made from the code.

Usage: python docs/site/build_site.py OUT     (make docs)

OUT/source gets README, CONTRIBUTING, docs/ and notebooks/ at the places they have in the checkout,
so that every relative link holds in both; OUT/html gets the site. A warning is an error, and so is
a link that leads nowhere.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from citations import with_targets
from reference import assumptions_page, command_line_page, policy_page, rules_page

CHECKOUT = Path(__file__).resolve().parent.parent.parent
COPIED = (
    "CONTRIBUTING.md",
    "LICENSE",
    "CITATION.cff",
    "docs",
    "notebooks",
    "data/tables",
    "data/posted",
    "data/patches",
    "data/experiments/build_rounds",
    "data/experiments/reserve_score",
    "data/experiments/reserve_loads",
    "data/experiments/reserve_control",
    "data/experiments/reserve_defer",
    "data/experiments/score_cost",
    "data/experiments/pageblock_order",
    "data/experiments/folio_sizes",
    "data/experiments/native_folio_sizes",
    "data/experiments/native_defrag",
    "data/experiments/native_rounds",
    "data/experiments/matrix",
    "data/experiments/unseen_guests",
)
GENERATED = {
    "policy_fields": policy_page,
    "kernel_rules": rules_page,
    "assumptions": assumptions_page,
    "command_line": command_line_page,
}
"""Pages of the site that are made from the code."""
CONTENTS = {
    "Start": ("docs/install", "docs/notebooks"),
    "Tutorials": ("notebooks/*",),
    "How to": (
        "docs/how_to_record",
        "docs/how_to_read",
        "docs/commands",
        "docs/explain",
        "docs/sweeps",
        "docs/experiments",
        "docs/posts",
        "docs/locks",
        "docs/your_kernel",
        "docs/add_a_proposal",
    ),
    "Studies": (
        "docs/highatomic",
        "docs/defrag_mode",
        "docs/pageblock_order",
        "docs/pcp_buddy",
        "docs/batched_freeing",
        "docs/proposals",
    ),
    "Explanation": (
        "docs/accuracy",
        "docs/predicted_and_run",
        "docs/pressure",
        "docs/kswapd_waits",
        "docs/speed",
        "docs/size",
        "docs/security",
    ),
    "Reference": (
        *(f"docs/{name}" for name in GENERATED),
        "docs/recording",
        "docs/formats",
        "docs/page_allocator",
        "docs/trace_events",
        "docs/*",
        "docs/glossary",
    ),
    "Development": ("CONTRIBUTING",),
}
"""The site's contents by heading: documents without their suffix; * is all that no line names."""


def gather(source: Path) -> None:
    """Put everything that Sphinx reads into a new folder."""
    for name in COPIED:
        copied = CHECKOUT / name
        if copied.is_dir():
            ignored = shutil.ignore_patterns("site", ".ipynb_checkpoints", "__pycache__")
            shutil.copytree(copied, source / name, ignore=ignored)
        else:
            shutil.copyfile(copied, source / name)
    for name, page in GENERATED.items():
        (source / "docs" / f"{name}.md").write_text(page())
    for page in (source / "docs").glob("*.md"):
        page.write_text(with_targets(page.read_text()))
    front = (CHECKOUT / "README.md").read_text()
    (source / "index.md").write_text("\n".join([front, *contents(source)]))


def contents(source: Path) -> list[str]:
    """Sphinx's tables of contents, which the theme shows beside every page."""
    named = {document for group in CONTENTS.values() for document in group}
    lines = []
    for heading, documents in CONTENTS.items():
        listed = [
            each
            for document in documents
            for each in (others(source, document, named) if "*" in document else [document])
        ]
        lines += ["", "```{toctree}", ":hidden:", f":caption: {heading}", "", *listed, "```"]
    return [*lines, ""]


def others(source: Path, pattern: str, named: set[str]) -> list[str]:
    """The documents that a pattern names and no line of the contents does, by name."""
    files = (file for file in source.glob(pattern) if file.suffix in (".md", ".ipynb"))
    documents = {str(file.relative_to(source).with_suffix("")) for file in files}
    return sorted(documents - named)


def build(out: Path) -> int:
    """Run Sphinx on what was gathered.

    Returns:
        Sphinx's exit code; not 0 if it had anything to warn of.
    """
    settings = ["-c", str(Path(__file__).parent), "-b", "html", "-q", "-W", "--keep-going"]
    places = ["-d", str(out / "doctrees"), str(out / "source"), str(out / "html")]
    command = [sys.executable, "-m", "sphinx", *settings, *places]
    return subprocess.run(command, check=False).returncode


def main(out: Path) -> int:
    """Build the site anew in a folder; returns the exit code."""
    shutil.rmtree(out, ignore_errors=True)
    (out / "source").mkdir(parents=True)
    gather(out / "source")
    return build(out)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1]).resolve()))
