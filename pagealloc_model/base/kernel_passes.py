"""numba's passes that kernels need, and no others: how one function comes from bytecode to LLVM.

numba runs some thirty passes over a function, looks up after each which variables live where, and
says where each variable ends, so that references are counted. Kernels have no closures, contexts,
exceptions, generators, whole-array expressions and references. So what looks for these is left
out, and who lives where is never asked. All of this rests on numba's insides, hence the pinned
version; kernels compiled in numba's own way do the same (PAGEALLOC_PLAIN_NUMBA).
"""

from __future__ import annotations

from typing import Any

from numba.core import ir
from numba.core.compiler_machinery import FunctionPass, PassManager, register_pass
from numba.core.errors import LoweringError, new_error_context
from numba.core.ir_utils import build_definitions
from numba.core.lowering import Lower
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


class _BeforeTypes(FunctionPass):
    """A pass over a function whose types are not known yet."""

    def __init__(self) -> None:
        super().__init__()


@register_pass(mutates_CFG=True, analysis_only=False)
class OneWayBack(_BeforeTypes):
    """Give each loop one jump back to its head."""

    _name = "one_way_back"

    def run_pass(self, state: Any) -> bool:
        """Do it."""
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
        """Do it."""
        state.func_ir = reconstruct_ssa(state.func_ir)
        state.func_ir._definitions = build_definitions(state.func_ir.blocks)
        return True


class KernelLower(Lower):
    """From a function's typed code to LLVM's."""

    def lower_block(self, block: ir.Block) -> None:
        """Lower a block; an error says in which line it is."""
        self.pre_block(block)
        for statement in block.body:
            self.loc = statement.loc
            try:
                self.lower_inst(statement)
            except Exception:
                with new_error_context(
                    'lowering "{inst}" at {loc}',
                    inst=statement,
                    loc=self.loc,
                    errcls_=lambda *given, **named: LoweringError(*given, loc=self.loc, **named),
                ):
                    raise
        self.post_block(block)

    def lower_inst(self, inst: Any) -> None:
        """Lower a statement; numba would also make a text of it, for whom it may concern."""
        if isinstance(inst, ir.Assign):
            value = self.lower_assign(self.typeof(inst.target.name), inst)
            self.storevar(value, inst.target.name)
        else:
            super().lower_inst(inst)

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        """Store a value; numba would load what was there before, to count references."""
        if name in self._singly_assigned_vars:
            self._blk_local_varmap[name] = value
        else:
            self.builder.store(value, self.getvar(name))


class KernelLowering(NativeLowering):
    """The pass that lowers a kernel's function."""

    @property
    def lowering_class(self) -> type[Lower]:
        """What lowers it."""
        return KernelLower


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

    def _runPass(self, index: int, pss: Any, internal_state: Any) -> None:
        pss.analysis = self._analysis
        pss.run_initialization(internal_state)
        pss.run_pass(internal_state)
        pss.run_finalizer(internal_state)
