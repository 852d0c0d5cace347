"""Tests on the kernel's own code: what their fixtures give, by a series such as "6.12"."""

from collections.abc import Callable

from pagealloc_model.kernel_source.compiled_tree import CompiledTree
from pagealloc_model.kernel_source.source_tree import SourceTree

Sources = Callable[[str], SourceTree]
Compiled = Callable[[str], CompiledTree]
Patched = Callable[[str, str, str, str], SourceTree]
"""A copy of a series' tree: in a file, by its path, one text is replaced by another."""
