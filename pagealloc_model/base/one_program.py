"""Kernels compiled as one program, each function once, and kept on disk with their entry point.

numba by itself compiles a function anew for every combination of argument types, optimises it with
all that it calls at every depth of the call graph, and lets it be called from elsewhere. Here an
inner function is only lowered, for the types that it declares; its entry point's library takes all
in, keeps them to itself, and is optimised. A file's name says what it rests on (see `jit`). All
this rests on insides of numba that KNOWN_NUMBA of `jit` have.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from numba import types
from numba.core.caching import NullCache
from numba.core.codegen import CodeLibrary, JITCodeLibrary
from numba.core.compiler import CompilerBase, CompileResult, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.registry import CPUDispatcher
from numba.core.runtime import rtsys
from numba.core.serialize import dumps
from numba.core.typed_passes import NativeLowering
from numba.np import arrayobj


class InnerLibrary(JITCodeLibrary):
    """One function, to be linked into an entry point's library; it is never run by itself."""

    attributes: tuple[str, tuple[str, ...]] = ("", ())
    """LLVM's attributes for the function of this name."""

    def finalize(self) -> None:
        """Close the library; nothing is optimised or emitted."""
        self._finalized = True


class EntryLibrary(JITCodeLibrary):
    """An entry point and all functions it calls, directly or not."""

    def finalize(self) -> None:
        """Link everything, each library once, optimise, emit machine code."""
        libraries: dict[CodeLibrary, None] = {}
        waiting = list(self._linking_libraries)[::-1]
        while waiting:
            library = waiting.pop()
            if library not in libraries:
                libraries[library] = None
                if isinstance(library, InnerLibrary):
                    waiting += list(library._linking_libraries)[::-1]
        self._linking_libraries = list(libraries)
        super().finalize()

    def _optimize_final_module(self) -> None:
        attributes = dict(getattr(part, "attributes", ("", ())) for part in self._linking_libraries)
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage.name == "linkonce_odr":
                function.linkage = "internal"
            for attribute in attributes.get(function.name, ()):
                function.add_function_attribute(attribute)
        super()._optimize_final_module()


@contextmanager
def _indices_from_the_start() -> Iterator[None]:
    """Lower `array[index]` without asking whether the index counts from the array's end."""
    before = arrayobj.fix_integer_index

    def as_it_is(context: Any, builder: Any, kind: Any, index: Any, _: Any) -> Any:
        return context.cast(builder, index, kind, types.intp if kind.signed else types.uintp)

    arrayobj.fix_integer_index = as_it_is
    try:
        yield
    finally:
        arrayobj.fix_integer_index = before


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerKernel(NativeLowering):
    """Lower a function into a library of its own, as its compiler says."""

    _name = "lower_kernel"

    def run_pass(self, state: Any) -> bool:
        """Make the function's library and let other kernels find it."""
        compiler = state.pipeline
        name = state.func_id.func_qualname
        state.library = library = compiler.library(state.targetctx.codegen(), name)
        state.flags.noalias = not compiler.is_guest
        is_entry = isinstance(library, EntryLibrary)
        if is_entry:
            library.enable_object_caching()
        else:
            state.flags.no_compile = True
        with nullcontext() if compiler.is_guest else _indices_from_the_start():
            super().run_pass(state)
        if not is_entry:
            state["cr"] = lowered = state["cr"]._replace(cfunc=object())
            state.targetctx.insert_user_function(lowered.cfunc, lowered.fndesc, [library])
            library.attributes = (lowered.fndesc.llvm_func_name, compiler.attributes)
        return True


class InnerCompiler(CompilerBase):
    """numba's passes with `LowerKernel`, for functions that only kernels call.

    Attributes:
        library: what the function becomes.
        is_guest: it is a caller's; a kernel's arrays are apart, and its indices not below 0.
        attributes: LLVM's, of the function.
    """

    library: type[JITCodeLibrary] = InnerLibrary
    is_guest = False
    attributes: tuple[str, ...] = ()

    def define_pipelines(self) -> list[Any]:
        """The one pipeline."""
        builder = DefaultPassBuilder.define_nopython_pipeline(self.state)
        builder.passes = [
            (LowerKernel if step is NativeLowering else step, about)
            for step, about in builder.passes
        ]
        builder.finalize()
        return [builder]


COMPILERS = {
    role: type(f"{role.title()}Compiler", (InnerCompiler,), about)
    for role, about in {
        "inner": {},
        "guest": {"is_guest": True},
        "hot": {"attributes": ("alwaysinline",)},
        "cold": {"attributes": ("noinline", "cold")},
        "entry": {"library": EntryLibrary},
    }.items()
}


class InnerDispatcher(CPUDispatcher):
    """A function with one specialisation: parameters declared `int` are int64."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Compile the function for the types it declares, whatever integers it is called with."""
        _, folded = self._compiler.fold_argument_types(args, kws)
        declared, wanted = self.py_func.__annotations__, []
        for name, kind in zip(self._compiler.pysig.parameters, folded, strict=True):
            plain = types.unliteral(kind)
            if declared.get(name) == "int" and isinstance(plain, types.Integer | types.Boolean):
                plain = types.int64
            wanted.append(plain if declared.get(name) in ("int", "bool") else kind)
        return super().get_call_template(tuple(wanted), {})

    def add_overload(self, cres: Any) -> None:
        """Note what was compiled, for kernels alone."""
        self.overloads[tuple(cres.signature.args)] = cres

    def __call__(self, *_: Any, **__: Any) -> Any:
        """There is no machine code that Python could call: a TypeError."""
        name = self.py_func.__name__
        raise TypeError(f"{name}: only kernels call it; call {name}.py_func from Python")


def compiled_as(function: Any) -> str:
    """All that a function's machine code rests on beside its Python code.

    That is its module too: code kept on disk finds the function's globals by that name.
    """
    plain: Callable[..., Any] = getattr(function, "py_func", function)
    compiler = getattr(getattr(function, "_compiler", None), "pipeline_class", None)
    options = sorted(getattr(function, "targetoptions", {}).items())
    declared = sorted(getattr(plain, "__annotations__", {}).items())
    return f"{plain.__module__} {getattr(compiler, '__name__', '')} {options} {declared}"


class EntryCache(NullCache):
    """An entry point's machine code on disk: a file for each combination of argument types.

    A file begins with the digest of the rest. One that is damaged, or that neither this user nor
    root owns, counts as missing. `stem` makes the beginning of the files' paths; it is asked for on
    first use, when all that the function refers to exists.
    """

    def __init__(self, function: Callable[..., Any], stem: Callable[[], Path]) -> None:
        self.function = function
        self._stem = stem

    def _file(self, sig: Any, context: Any) -> Path:
        kinds = getattr(sig, "args", sig)
        # The name of a named tuple's type does not tell the order of its fields.
        fields = [kind.fields for kind in kinds if isinstance(kind, types.BaseNamedTuple)]
        key = f"{[str(kind) for kind in kinds]} {fields} {context.codegen().magic_tuple()}"
        stem = self._stem()
        return stem.with_name(f"{stem.name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.kernel")

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The code compiled for these types, or None; its file counts as used.

        numba would first import all that it can compile (0.4 s); this needs only its runtime.
        """
        rtsys.initialize(target_context)
        file = self._file(sig, target_context)
        try:
            with file.open("rb") as opened:
                owner = os.fstat(opened.fileno()).st_uid
                digest, rest = opened.read(hashlib.sha256().digest_size), opened.read()
        except OSError:
            return None
        if owner not in (0, os.geteuid()) or digest != hashlib.sha256(rest).digest():
            return None
        with suppress(OSError):
            os.utime(file)
        # A hook's module may be gone, or never was one: then it is compiled once more.
        with suppress(ModuleNotFoundError):
            return CompileResult._rebuild(target_context, *pickle.loads(rest))
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled, where that can be written and holds no addresses."""
        if data.library.has_dynamic_globals:
            return
        file, code = self._file(sig, data.target_context), dumps(data._reduce())
        written = file.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                with written.open("xb") as opened:
                    opened.write(hashlib.sha256(code).digest() + code)
                written.replace(file)
            finally:
                written.unlink(missing_ok=True)
