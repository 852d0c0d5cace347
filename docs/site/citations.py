"""Sphinx extension: every citation of the spec ("S4.2", "T6") leads to the section it names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging

SECTION = re.compile(r"^(?=(?:## |\*\*)([ST]\d{1,2}(?:\.\d{1,2})?)\b)", re.MULTILINE)
"""The beginning of a section of the spec, as tests/test_citations.py finds it."""
CITATION = re.compile(r"\b[ST]\d{1,2}(?:\.\d{1,2})?\b")
NOT_PROSE = (nodes.FixedTextElement, nodes.literal, nodes.reference, nodes.title, nodes.raw)

logger = logging.getLogger(__name__)


def with_targets(text: str) -> str:
    """A page whose sections of the spec are targets of links: `s4-2` stands before S4.2."""
    return SECTION.sub(lambda found: f"({target(found[1])})=\n", text)


def target(section: str) -> str:
    """The name of a section's place in the site."""
    return section.lower().replace(".", "-")


class CitationLinks(SphinxPostTransform):
    """Makes links of the citations in prose; one that names no section is a warning."""

    default_priority = 900

    def run(self, **_: Any) -> None:
        """Replace each text that cites something."""
        for text in list(self.document.findall(nodes.Text)):
            if CITATION.search(text) and not in_any(text, NOT_PROSE):
                text.parent.replace(text, list(self._pieces(text)))

    def _pieces(self, text: nodes.Text) -> Iterator[nodes.Node]:
        end = 0
        for found in CITATION.finditer(text):
            yield nodes.Text(text[end : found.start()])
            yield self._link(found[0])
            end = found.end()
        yield nodes.Text(text[end:])

    def _link(self, section: str) -> nodes.Node:
        places = self.env.get_domain("std").anonlabels  # type: ignore[attr-defined]
        if target(section) not in places:
            logger.warning("%s cites %s, which is no section", self.env.docname, section)
            return nodes.Text(section)
        document, name = places[target(section)]
        address = self.app.builder.get_relative_uri(self.env.docname, document)
        return nodes.reference("", section, internal=True, refuri=f"{address}#{name}")


def in_any(node: nodes.Node, kinds: tuple[type[nodes.Node], ...]) -> bool:
    """Whether a node lies in one of some kinds."""
    while node is not None:
        if isinstance(node, kinds):
            return True
        node = node.parent
    return False


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the links to the site."""
    app.add_post_transform(CitationLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
