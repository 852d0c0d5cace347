"""Kernels compiled by numba: `entry`, `inner`, `hot`, `cold` are all that their authors see.

README.md beside this file says how it works.
"""

from pagealloc_model.base.jit.settings import CHECKED, KNOWN_NUMBA, PLAIN  # imports numba

# isort: split
from pagealloc_model.base.jit.digest import function_digest
from pagealloc_model.base.jit.kept import (
    cache_base,
    cache_directory,
    entry_fingerprint,
    kernel_fingerprint,
    kernels_directory,
    sources_directory,
)
from pagealloc_model.base.jit.options import (
    cold,
    compilations,
    entry,
    entry_name,
    guest,
    hot,
    inner,
)
from pagealloc_model.base.jit.replaced import kernels_with

__all__ = [
    "CHECKED",
    "KNOWN_NUMBA",
    "PLAIN",
    "cache_base",
    "cache_directory",
    "cold",
    "compilations",
    "entry",
    "entry_fingerprint",
    "entry_name",
    "function_digest",
    "guest",
    "hot",
    "inner",
    "kernel_fingerprint",
    "kernels_directory",
    "kernels_with",
    "sources_directory",
]
