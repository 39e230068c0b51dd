"""Writes the declarations of one module."""

import ast
import shutil
from pathlib import Path

from declarations.members import Member, Members
from declarations.modules import Assigned, Imported, Module, Modules
from declarations.syntax import annotations_in, without
from declarations.types import EXACT, INT, CompiledClass, Types, returned_by

DECORATORS = {"final": "@cython.final\n", "short_lived": "@cython.final\n@cython.no_gc\n@cython.freelist(16)\n"}
"""What decorators of classes mean in C."""


class Writer:
    """Writes declarations of the modules `hot`; `root` is the folder with the package `ottla`."""

    def __init__(self, root: Path, hot: tuple[str, ...]) -> None:
        self.modules = Modules(root, hot)
        self.types = Types(self.modules)
        self._members = Members(self.modules, self.types)
        self._used: set[str] = set()
        """The types in the declarations that are being written."""

    @property
    def read(self) -> set[str]:
        """The modules that were read."""
        return self.modules.read

    def declarations(self, name: str) -> str:
        """The text of the `.pxd` of a module."""
        module = self.modules.hot_module(name)
        self._used = set()
        owners = self._owners(module)
        parts = [
            "".join(f"cdef class {owner.name}\n" for owner in owners) if len(owners) > 1 else "",
            "".join(f"cdef {self._use(kind)} {name}\n" for name, kind in self.constants(module).items()),
            *(self._class(owner) for owner in owners),
            "".join(self._function(each) for each in self._members.functions(module)),
        ]
        return "\n".join(part for part in (self._imports(module), *parts) if part)

    def _imports(self, module: Module) -> str:
        lines = ["cimport cython\n", "from libc.stdint cimport int64_t\n"]
        hidden = self._members.method_names(module)
        for name, what in module.names.items():
            if isinstance(what, Imported) and name not in hidden and (place := self._imported(module, name, what)):
                lines.append(f"from {place[0]} cimport {place[1]}{f' as {name}' if name != place[1] else ''}\n")
        for kind in sorted(self._used):
            owner = self.types.classes.get(kind)
            if owner is not None and owner.module is not module:
                lines.append(f"from {owner.module.name} cimport {kind}\n")
            elif owner is None and (source := self.modules.source_of_type(kind)):
                lines.append(f"from {source} cimport {kind}\n")
        return "".join(lines)

    def _imported(self, module: Module, name: str, what: Imported) -> tuple[str, str] | None:
        """The module and the name of a module or of a function of C that a module imports."""
        whole = f"{what.module}.{what.name}"
        if self.modules.has_declarations(whole) or any(not each.is_hidden for each in self._functions_of(whole)):
            return what.module, what.name
        found = self.modules.find(module, name)
        known = self._functions_of(found.module.name) if found else []
        return (found.module.name, found.name) if found and any(each.node is found.what and not each.is_hidden for each in known) else None

    def _functions_of(self, name: str) -> list[Member]:
        return list(self._members.functions(self.modules.hot_module(name))) if name in self.modules.hot else []

    def constants(self, module: Module) -> dict[str, str]:
        """The C types of the constants that functions of a module use."""
        bodies = [each for each in module.tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
        used = {node.id for each in bodies for node in ast.walk(each) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        kinds = {name: self.types.constant(module, name) for name in sorted(used & set(module.names))}
        return {name: kind for name, kind in kinds.items() if kind in (INT, "double", "bytes") or (kind in EXACT and name.startswith("_"))}

    def source(self, name: str) -> str:
        """The text of a module for Cython: without annotations and decorators, which its declarations have, and with constants that Python
        may import. Each line keeps its number.
        """
        module = self.modules.hot_module(name)
        text = self.modules.path_of(name).read_text(encoding="utf-8")
        lines = without(text, annotations_in(text, module.tree)).splitlines(keepends=True)
        for owner in self._owners(module):
            for each in owner.node.decorator_list:
                lines[each.lineno - 1] = "\n"
        shown = [each for each in self.constants(module) if isinstance(module.names[each], Assigned) and not each.startswith("_")]
        if shown:
            lines.append(f"globals().update({', '.join(f'{each}={each}' for each in shown)})\n")
        return "".join(lines)

    def _owners(self, module: Module) -> list[CompiledClass]:
        return [each for each in self.types.classes.values() if each.module is module]

    def _use(self, kind: str) -> str:
        self._used.add(kind)
        return kind

    def _class(self, owner: CompiledClass) -> str:
        """The declaration of a class. In a final one, what begins with an underscore is for C alone: Python's access to it is code, too."""
        base = f"({self._use(owner.base.name)})" if owner.base else ""
        decorators = [DECORATORS[name] for each in owner.node.decorator_list if (name := ast.unparse(each)) in DECORATORS]
        # Cython's final classes cannot override methods.
        lines = ["" if base else "".join(decorators), f"cdef class {owner.name}{base}:\n"]
        for name in owner.slots:
            found = self.types.attribute(owner.name, name)
            assert found is not None
            kind = self._use(found[1])
            is_hidden = self.modules.source_of_type(kind) or (decorators and name.startswith("_"))
            lines.append(f"    cdef {'' if is_hidden else 'public '}{kind} {name}\n")
        lines += [self._function(each) for each in self._members.methods(owner)]
        return "".join(lines) if len(lines) > 2 else f"{''.join(lines)}    pass\n"

    def _function(self, member: Member) -> str:
        node, owner, model = member.node, member.owner, member
        if owner is not None:
            top = self._members.top(owner, node.name)
            model = Member(top.module, top, top.methods[node.name], member.is_hidden)
        parameters = self.types.parameters(model.module, model.owner, model.node).types
        first_default = len(node.args.args) - len(node.args.defaults)
        parts = [
            "self" if owner and not number else f"{self._use(kind)} {each.arg}{'=*' if number >= first_default else ''}"
            for number, (each, kind) in enumerate(zip(node.args.args, parameters.values(), strict=True))
        ]
        returned = self.types.returned(returned_by(model.module, model.node))
        known = [f"{name}={self._use(kind)}" for name, kind in self._members.variables(member).items()]
        indent = "    " if owner else ""
        decorator = f"{indent}@cython.locals({', '.join(known)})\n" if known else ""
        return f"{decorator}{indent}{'cdef' if member.is_hidden else 'cpdef'} {self._use(returned)} {node.name}({', '.join(parts)})\n"


def write(root: Path, into: Path, hot: tuple[str, ...], sources: list[str]) -> list[str]:
    """Copy the files `sources` from below `root` to below `into`, with declarations beside each module of `hot`.

    Returns the names of the other files that were read.
    """
    for name in sources:
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, into / name) if (root / name).exists() else None
    for folder in {above for name in sources for above in (into / name).parents if into in above.parents}:
        (folder / "__init__.py").touch()
    writer = Writer(root, hot)
    for name in hot:
        path = into / name.replace(".", "/")
        path.with_suffix(".pxd").write_text(writer.declarations(name), encoding="utf-8")
        path.with_suffix(".py").write_text(writer.source(name), encoding="utf-8")
    return sorted({f"{name.replace('.', '/')}.py" for name in writer.read} - set(sources))
