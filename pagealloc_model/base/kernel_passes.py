"""numba's passes that kernels need, and no others: how one function comes from bytecode to LLVM.

numba runs some thirty passes over a function, looks up after each which variables live where, and
says where each variable ends, so that references are counted. Kernels have no closures, contexts,
exceptions, generators, whole-array expressions and references. So what looks for these is left
out, and who lives where is never asked. All of this rests on numba's insides, hence the pinned
version; kernels compiled in numba's own way do the same (PAGEALLOC_PLAIN_NUMBA).
"""

from __future__ import annotations

from typing import Any

from numba.core.compiler_machinery import FunctionPass, PassManager, register_pass
from numba.core.ir_utils import build_definitions
from numba.core.rewrites import rewrite_registry
from numba.core.ssa import reconstruct_ssa
from numba.core.transforms import canonicalize_cfg
from numba.core.typed_passes import (
    NativeLowering,
    NoPythonBackend,
    NoPythonSupportedFeatureValidation,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.untyped_passes import (
    DeadBranchPrune,
    FixupArgs,
    RewriteSemanticConstants,
    TranslateByteCode,
)

from pagealloc_model.base.remembered_types import remembered_types


class _BeforeTypes(FunctionPass):
    """A pass over a function whose types are not known yet."""

    def __init__(self) -> None:
        super().__init__()


@register_pass(mutates_CFG=True, analysis_only=False)
class OneWayBack(_BeforeTypes):
    """Give each loop one jump back to its head."""

    _name = "one_way_back"

    def run_pass(self, state: Any) -> bool:
        """Rewrite the function's blocks."""
        state.func_ir.blocks = canonicalize_cfg(state.func_ir.blocks)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class RewriteConstants(_BeforeTypes):
    """Write constant indices as such: the name of a record's field is one."""

    _name = "rewrite_constants"

    def run_pass(self, state: Any) -> bool:
        """Apply numba's rewrites that need no types, each until nothing is left to it."""
        blocks = state.func_ir.blocks
        for rewrite_class in rewrite_registry.rewrites["before-inference"]:
            rewrite = rewrite_class(state)
            for label in list(blocks):
                while rewrite.match(state.func_ir, blocks[label], state.typemap, state.calltypes):
                    blocks[label] = rewrite.apply()
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class OneAssignment(_BeforeTypes):
    """Give each assignment a variable of its own."""

    _name = "one_assignment"

    def run_pass(self, state: Any) -> bool:
        """Rewrite the function, and note where each variable is assigned."""
        state.func_ir = reconstruct_ssa(state.func_ir)
        state.func_ir._definitions = build_definitions(state.func_ir.blocks)
        return True


class KernelPasses(PassManager):
    """The passes of a kernel's function.

    Args:
        lowering: the one that makes LLVM's code.
    """

    def __init__(self, lowering: type[NativeLowering]) -> None:
        super().__init__("nopython")
        for each in (
            TranslateByteCode,
            FixupArgs,
            OneWayBack,
            RewriteSemanticConstants,
            DeadBranchPrune,
            RewriteConstants,
            OneAssignment,
            DeadBranchPrune,
            NopythonTypeInference,
            PreLowerStripPhis,
            NoPythonSupportedFeatureValidation,
            lowering,
            NoPythonBackend,
        ):
            self.add_pass(each, each.name())
        self.finalize()

    def run(self, state: Any) -> None:
        """Run the passes; types are remembered meanwhile."""
        with remembered_types(lambda dispatcher: hasattr(dispatcher, "identity")):
            super().run(state)

    def _runPass(self, index: int, pss: Any, internal_state: Any) -> None:
        pss.analysis = self._analysis
        pss.run_initialization(internal_state)
        pss.run_pass(internal_state)
        pss.run_finalizer(internal_state)
