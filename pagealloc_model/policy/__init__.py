"""The kernel's choices (`Policy`), ours (`Assumptions`), and what kernel versions differ in."""

from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.kernel_rules import KernelRules, preset_names
from pagealloc_model.policy.ownership_options import OwnershipOptions
from pagealloc_model.policy.policy import Assumptions, Policy

__all__ = [
    "Assumptions",
    "ElasticAssumptions",
    "KernelRules",
    "OwnershipOptions",
    "Policy",
    "preset_names",
]
