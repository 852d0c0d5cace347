"""Kernels compiled as one program: each function once, optimised once, with its entry point.

numba by itself compiles a function anew for every combination of argument types (an int8 read from
a record, an int16, a literal), and optimises and emits it together with all that it calls, at every
depth of the call graph. And it lets every function be called from elsewhere, so that an array stays
seven arguments in each call. Here an inner function is compiled for the types that it declares and
is only lowered (see `kernel_passes`, `kernel_lowering` and `kernel_calls`); its entry point's
library takes in all of them, keeps them to itself, and is the one that is optimised. All of this
rests on numba's insides, hence the pinned version.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from numba import _dynfunc, types
from numba.core.codegen import CodeLibrary, JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, _LowerResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import register_pass
from numba.core.dispatcher import Dispatcher
from numba.core.registry import CPUDispatcher
from numba.core.sigutils import normalize_signature
from numba.core.typed_passes import NativeLowering
from numba.np import arrayobj

from pagealloc_model.base.kernel_calls import KernelContext, MayFail, let_kernels_call
from pagealloc_model.base.kernel_lowering import DirectLower, KernelLower
from pagealloc_model.base.kernel_passes import KernelPasses
from pagealloc_model.base.remembered_types import nothing_new

OWN_LINKAGE = "internal"
SHARED_LINKAGE = "linkonce_odr"
"""What numba gives functions that it links into a library from another."""
NUMBAS_RUNTIME = "nrt"
"""Name of the library that numba links into every other."""


class InnerLibrary(JITCodeLibrary):
    """One function, to be linked into an entry point's library; it is never run by itself.

    Attributes:
        set_apart: the name of a function that few events go through, "" of any other.
        direct: whether kernels call it directly (see `kernel_calls`).
        found_as: module, name and argument types by which it is found again, None if it is not.
    """

    set_apart = ""
    direct = False
    found_as: tuple[str, str, tuple[Any, ...]] | None = None

    def _optimize_functions(self, ll_module: Any) -> None:
        _optimize_definitions(self, ll_module)

    def finalize(self) -> None:
        """Take in numba's own functions that this one calls; nothing is optimised or emitted.

        They are small, such as `int`, and each function has its own, so that no name of theirs
        matters outside. numba's runtime comes with the entry point.
        """
        self._raise_if_finalized()
        ours = [each for each in self._linking_libraries if isinstance(each, InnerLibrary)]
        for library in dict.fromkeys(self._linking_libraries):
            if not isinstance(library, InnerLibrary) and library.name != NUMBAS_RUNTIME:
                self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage.name == SHARED_LINKAGE:
                function.linkage = OWN_LINKAGE
        self._linking_libraries = ours
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """No function can be called from outside."""
        self._ensure_finalized()
        return 0


class EntryLibrary(JITCodeLibrary):
    """An entry point and all functions it calls, directly or not."""

    def _optimize_functions(self, ll_module: Any) -> None:
        _optimize_definitions(self, ll_module)

    def finalize(self) -> None:
        """Link everything, optimise, emit machine code."""
        self._linking_libraries = _called(self._linking_libraries)
        super().finalize()

    def _optimize_final_module(self) -> None:
        apart = {getattr(library, "set_apart", "") for library in self._linking_libraries}
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage.name == SHARED_LINKAGE:
                function.linkage = OWN_LINKAGE
            if function.name in apart:
                for attribute in ("noinline", "cold"):
                    function.add_function_attribute(attribute)
        super()._optimize_final_module()


def _optimize_definitions(library: CodeLibrary, module: Any) -> None:
    """Optimise a module's functions one by one: numba sets up passes for mere names too."""
    module.data_layout = library._codegen._data_layout
    for function in module.functions:
        if not function.is_declaration:
            passes, builder = library._codegen._function_pass_manager()
            passes.run(function, builder)


def callable_by_kernels(descriptor: Any, environment: Any, library: CodeLibrary) -> Any:
    """Return numba's handle of a function that only kernels call."""
    name = descriptor.qualname.rpartition(".")[2]
    module = descriptor.lookup_module()
    return _dynfunc.make_function(module, name, "", 0, environment, (library,))


def _name_everywhere(state: Any) -> None:
    """Give a function that can be kept on disk a name that is the same in every process.

    numba's own holds a number that counts the functions of a process.
    """
    function, arguments = state.func_id.func, tuple(state.args)
    place = (function.__module__, function.__name__)
    dispatcher = getattr(sys.modules.get(place[0]), place[1], None)
    if isinstance(dispatcher, InnerDispatcher) and dispatcher.py_func is function:
        identity = dispatcher.identity(arguments)
        if identity:
            state.func_ir.func_id.unique_id = identity
            state.library.found_as = (*place, arguments)


def _called(libraries: list[CodeLibrary]) -> list[CodeLibrary]:
    """Libraries and, of inner functions, all libraries below them, each once."""
    found: dict[CodeLibrary, None] = {}

    def add(library: CodeLibrary) -> None:
        if library not in found:
            found[library] = None
            for below in library._linking_libraries if isinstance(library, InnerLibrary) else ():
                add(below)

    for each in libraries:
        add(each)
    return list(found)


@contextmanager
def _indices_from_the_start() -> Iterator[None]:
    """Lower `array[index]` without asking whether the index counts from the array's end."""
    before = arrayobj.fix_integer_index

    def as_it_is(context: Any, builder: Any, given: Any, index: Any, _: Any) -> Any:
        return context.cast(builder, index, given, types.intp if given.signed else types.uintp)

    arrayobj.fix_integer_index = as_it_is
    try:
        yield
    finally:
        arrayobj.fix_integer_index = before


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerGuest(NativeLowering):
    """Lower a caller's function that only kernels call; it comes with their entry points."""

    _name = "lower_guest"

    def run_pass(self, state: Any) -> bool:
        """Make the function's library and let kernels find it."""
        self.lower_into_library(state)
        state.library.finalize()
        lowered = state["cr"]
        handle = callable_by_kernels(lowered.fndesc, lowered.env, state.library)
        let_kernels_call(state.targetctx, handle, lowered.fndesc, state.library)
        state["cr"] = _LowerResult(
            lowered.fndesc, lowered.call_helper, cfunc=handle, env=lowered.env
        )
        return True

    def lower_into_library(self, state: Any) -> None:
        """Make the function's library."""
        state.library = InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        _name_everywhere(state)
        super().run_pass(state)


class _LowerAsKernel(LowerGuest):
    """How a function of the kernels is lowered, by one of two ways to call it."""

    lowering_class = KernelLower


class _LowerDirectly(_LowerAsKernel):
    lowering_class = DirectLower

    def lower_into_library(self, state: Any) -> None:
        super().lower_into_library(state)
        state.library.direct = True


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerInner(LowerGuest):
    """Lower a function of the kernels, as the kernels are: see the top of the file."""

    _name = "lower_inner"

    def lower_into_library(self, state: Any) -> None:
        """Make the function's library: to be called directly, unless it may fail."""
        state.flags.noalias = True
        before = state.targetctx
        with _indices_from_the_start():
            if not state.flags.boundscheck:
                state.targetctx = KernelContext.of(before)
                with suppress(MayFail):
                    _LowerDirectly().lower_into_library(state)
                    return
            state.targetctx = KernelContext.of(before)
            _LowerAsKernel().lower_into_library(state)


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerHot(LowerInner):
    """Lower a function that becomes part of every function that calls it."""

    _name = "lower_hot"

    def lower_into_library(self, state: Any) -> None:
        """Make the function's library."""
        state.flags.forceinline = True
        super().lower_into_library(state)


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerCold(LowerInner):
    """Lower a function that stays by itself, away from what is run most."""

    _name = "lower_cold"

    def lower_into_library(self, state: Any) -> None:
        """Make the function's library."""
        super().lower_into_library(state)
        state.library.set_apart = state["cr"].fndesc.llvm_func_name


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerEntry(NativeLowering):
    """Lower an entry point into a library that optimises all it calls."""

    _name = "lower_entry"
    lowering_class = KernelLower

    def run_pass(self, state: Any) -> bool:
        """Make the entry point's library."""
        codegen = state.targetctx.codegen()
        state.library = EntryLibrary(codegen, state.func_id.func_qualname)
        state.library.enable_object_caching()
        state.flags.noalias = True
        with _indices_from_the_start():
            return super().run_pass(state)


class InnerCompiler(CompilerBase):
    """The passes of kernels with `LowerInner`."""

    lowering: type = LowerInner

    def __init__(self, typingctx: Any, targetctx: Any, *given: Any) -> None:
        with nothing_new(typingctx, targetctx):
            super().__init__(typingctx, targetctx, *given)
            del self.state.targetctx.refresh

    def define_pipelines(self) -> list[Any]:
        """The one pipeline."""
        return [KernelPasses(self.lowering)]


class GuestCompiler(CompilerBase):
    """All of numba's passes with `LowerGuest`: a caller may write what kernels do not."""

    def define_pipelines(self) -> list[Any]:
        """The one pipeline."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [
            (LowerGuest if each is NativeLowering else each, about) for each, about in passes.passes
        ]
        passes.finalize()
        return [passes]


class HotCompiler(InnerCompiler):
    """The passes of kernels with `LowerHot`."""

    lowering = LowerHot


class ColdCompiler(InnerCompiler):
    """The passes of kernels with `LowerCold`."""

    lowering = LowerCold


class EntryCompiler(CompilerBase):
    """The passes of kernels with `LowerEntry`."""

    def define_pipelines(self) -> list[Any]:
        """The one pipeline."""
        return [KernelPasses(LowerEntry)]


class InnerDispatcher(CPUDispatcher):
    """A function with one specialisation: parameters declared `int` are int64.

    Attributes:
        identity: makes of argument types what names the function on disk, "" if it is not kept.
    """

    identity: Callable[[tuple[Any, ...]], str] = staticmethod(lambda _: "")

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Compile the function for the types it declares, whatever integers it is called with."""
        _, folded = self._compiler.fold_argument_types(args, kws)
        declared = self.py_func.__annotations__
        names = self._compiler.pysig.parameters
        wanted = tuple(
            _as_declared(declared.get(name), given)
            for name, given in zip(names, folded, strict=True)
        )
        return super().get_call_template(wanted, {})

    def compile(self, sig: Any) -> Any:
        """Compile the function, or load what was lowered before; return numba's handle of it.

        numba's own way times each function within the times of all that wait for it.
        """
        with global_compiler_lock, self._compiling_counter:
            arguments, returned = normalize_signature(sig)
            made = self.overloads.get(arguments)
            if made is None:
                made = self._cache.load_overload(arguments, self.targetctx)
                if made is None:
                    made = self._compiler.compile(arguments, returned)
                    self._cache.save_overload(arguments, made)
                else:
                    let_kernels_call(self.targetctx, made.entry_point, made.fndesc, made.library)
                self.add_overload(made)
            return made.entry_point

    def __call__(self, *_: Any, **__: Any) -> Any:
        """There is no machine code that Python could call.

        Raises:
            TypeError: always.
        """
        name = self.py_func.__name__
        raise TypeError(f"{name}: only kernels call it; call {name}.py_func from Python")


def _as_declared(declaration: str | None, given: Any) -> Any:
    plain = types.unliteral(given)
    if declaration == "int" and isinstance(plain, types.Integer | types.Boolean):
        return types.int64
    return plain if declaration == "bool" else given


def inner_dispatcher(
    function: Callable[..., Any],
    options: dict[str, Any],
    compiler: type[CompilerBase] = InnerCompiler,
) -> Dispatcher:
    """The function as numba's dispatchers are, compiled once and for kernels only."""
    return InnerDispatcher(py_func=function, targetoptions=options, pipeline_class=compiler)


def compiled_as(function: Any) -> str:
    """What the machine code of a function rests on, beside its Python code.

    That is its module too: code kept on disk finds the function's globals by that name.

    Args:
        function: one of the dispatchers above, or a plain function.
    """
    plain = getattr(function, "py_func", function)
    compiler = getattr(getattr(function, "_compiler", None), "pipeline_class", None)
    options = sorted(getattr(function, "targetoptions", {}).items())
    declared = sorted(getattr(plain, "__annotations__", {}).items())
    return f"{plain.__module__} {getattr(compiler, '__name__', '')} {options} {declared}"
