"""Build the documentation as a site: pages, notebooks, and references made from the code.

Usage: python docs/site/build_site.py OUT     (make docs)

OUT/source gets README, CONTRIBUTING, docs/ and notebooks/ at the places they have in the checkout, so
that every relative link holds in both; OUT/html gets the site. A warning is an error, and so is a
link that leads nowhere.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from reference import assumptions_page, command_line_page, policy_page, rules_page

CHECKOUT = Path(__file__).resolve().parent.parent.parent
COPIED = ("CONTRIBUTING.md", "LICENSE", "CITATION.cff", "docs", "notebooks")
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
        "docs/sweeps",
        "docs/posts",
        "docs/your_kernel",
    ),
    "Subjects": ("docs/locks", "docs/ownership", "docs/pressure"),
    "How far, how fast, how large": ("docs/accuracy", "docs/speed", "docs/size"),
    "Reference": (
        *(f"docs/{name}" for name in GENERATED),
        "docs/recording",
        "docs/page_allocator",
        "docs/trace_events",
        "docs/*",
        "docs/glossary",
    ),
    "Development": ("CONTRIBUTING",),
}
"""The site's contents by heading: documents without their suffix; * is all that no line names."""
CITED = re.compile(r"^\*\*([ST]\d{1,2}\.\d{1,2})\b", re.MULTILINE)
"""The beginning of a section of the spec that has no heading."""


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
        page.write_text(with_anchors(page.read_text()))
    front = (CHECKOUT / "README.md").read_text()
    (source / "index.md").write_text("\n".join([front, *contents(source)]))


def with_anchors(text: str) -> str:
    """A page of the spec whose sections can be linked to: `page_allocator.md#s4-2`."""
    return CITED.sub(lambda found: f"({anchor(found[1])})=\n{found[0]}", text)


def anchor(section: str) -> str:
    """The name of a section's place in the site: s4-2 of S4.2."""
    return section.lower().replace(".", "-")


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
    """Gather the pages and run Sphinx on them.

    Returns:
        Sphinx's exit code; not 0 if it had anything to warn of.
    """
    source = out / "source"
    shutil.rmtree(out, ignore_errors=True)
    source.mkdir(parents=True)
    gather(source)
    settings = ["-c", str(Path(__file__).parent), "-b", "html", "-q", "-W", "--keep-going"]
    places = ["-d", str(out / "doctrees"), str(source), str(out / "html")]
    command = [sys.executable, "-m", "sphinx", *settings, *places]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(build(Path(sys.argv[1]).resolve()))
