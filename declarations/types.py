"""Derives C types from annotations and from expressions.

A variable has the type of the first value that it gets, and an attribute too: mypy holds all later values to that.
"""

import ast
import re
from dataclasses import dataclass, field

from declarations.modules import Assigned, Definition, Imported, Module, Modules
from declarations.syntax import assigned, attribute_of_self, is_final, is_none, members_of, slots_of, statements

OBJECT = "object"
INT = "int64_t"
SCALARS = {"int": INT, "bool": "bint", "float": "double"}
NUMBERS = ("bint", INT, "double")
"""Each may be converted to those behind it."""
EXACT = frozenset(("bytes", "bytearray", "str", "list", "dict", "set", "tuple"))
"""Types of Python that C code handles without a look at the type. A variable has exactly this type, or is None."""
MAPPINGS = frozenset(("dict", "Mapping", "MutableMapping", "OrderedDict", "defaultdict"))
COLLECTIONS = frozenset(("list", "set", "frozenset", "deque", "tuple", "Sequence", "Iterable", "Iterator", "Collection"))
TAKING = frozenset(("get", "pop", "setdefault", "popleft", "__getitem__"))
"""Methods that take one element out of a container."""


@dataclass(frozen=True, eq=False)
class Annotation:
    """An annotation, and the module whose names it uses."""

    module: Module
    node: ast.expr


@dataclass(eq=False)
class CompiledClass:
    """A class that becomes a C structure."""

    module: Module
    node: ast.ClassDef
    slots: tuple[str, ...]
    base: "CompiledClass | None"
    types: dict[str, str] = field(default_factory=dict)
    """The C types of its slots, as far as they were asked for."""
    annotations: dict[str, Annotation] = field(default_factory=dict)
    """The annotations of its slots, as far as there are any."""

    def __post_init__(self) -> None:
        self.name = self.node.name
        self.methods = {each.name: each for each in self.node.body if isinstance(each, ast.FunctionDef)}

    def lines(self) -> "list[CompiledClass]":
        """The class, and those above it."""
        return [self, *(self.base.lines() if self.base else [])]


@dataclass
class Scope:
    """What is known about the variables of one function."""

    module: Module
    types: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, Annotation] = field(default_factory=dict)


class Types:
    """The C types of everything in the compiled modules."""

    def __init__(self, modules: Modules) -> None:
        self._modules = modules
        self.classes: dict[str, CompiledClass] = {}
        self._open: set[tuple[str, str]] = set()
        """The attributes whose types are being found."""
        self._is_cut = False
        """Whether one of them led to itself, so that the types found meanwhile are not to be kept."""
        for name in sorted(modules.hot):
            module = modules.hot_module(name)
            for node in module.tree.body:
                if isinstance(node, ast.ClassDef):
                    self._class(module, node)

    def _class(self, module: Module, node: ast.ClassDef) -> CompiledClass | None:
        """The C structure of a class. None if it has no slots, or a base that is none itself."""
        if (known := self.classes.get(node.name)) is not None and known.node is node:
            return known
        slots = slots_of(module, node)
        if module.name not in self._modules.hot or slots is None or node.keywords or len(node.bases) > 1:
            return None
        base = self._base(module, node)
        if node.bases and base is None:
            return None
        if known is not None:
            raise ValueError(f"two compiled classes are named {node.name}")
        self.classes[node.name] = CompiledClass(module, node, slots, base)
        return self.classes[node.name]

    def _base(self, module: Module, node: ast.ClassDef) -> CompiledClass | None:
        found = self._modules.find(module, ast.unparse(node.bases[0])) if node.bases else None
        return self._class(found.module, found.what) if found and isinstance(found.what, ast.ClassDef) else None

    def _structure(self, module: Module, node: ast.ClassDef) -> CompiledClass | None:
        """The C structure that objects of a class have: its own, or that of a class above it."""
        if (owner := self._class(module, node)) is not None or not node.bases:
            return owner
        first = node.bases[0]
        found = self._modules.find(module, ast.unparse(first.value if isinstance(first, ast.Subscript) else first))
        return self._structure(found.module, found.what) if found and isinstance(found.what, ast.ClassDef) else None

    # Annotations ---------------------------------------------------------------------------------------------------------------------

    def of(self, annotation: Annotation) -> str:
        """The C type of an annotation."""
        module, node = annotation.module, annotation.node
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self.of(Annotation(module, ast.parse(node.value, mode="eval").body))
        if isinstance(node, ast.BinOp):
            members = members_of(node)
            kinds = {self.of(Annotation(module, each)) for each in members if not is_none(each)}
            kind = kinds.pop() if len(kinds) == 1 else OBJECT
            return OBJECT if kind in NUMBERS and any(map(is_none, members)) else kind
        if isinstance(node, ast.Subscript):
            return self.of(Annotation(module, node.slice if ast.unparse(node.value) == "Final" else node.value))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            inner = self._module_named(module, node.value.id)
            return node.attr if inner and node.attr in self._modules.declared(inner.name).types else OBJECT
        return self._named(module, node.id) if isinstance(node, ast.Name) else OBJECT

    def _module_named(self, module: Module, name: str) -> Module | None:
        """The module that another one imports by that name."""
        found = module.names.get(name)
        return self._modules.get(f"{found.module}.{found.name}") if isinstance(found, Imported) else None

    def _named(self, module: Module, name: str) -> str:
        found = self._modules.find(module, name)
        if found is None:
            return SCALARS.get(name) or (name if name in EXACT else OBJECT)
        if found.name in self._modules.declared(found.module.name).types:
            return found.name
        if isinstance(found.what, ast.ClassDef):
            if found.module is not module and name not in module.imported:
                return OBJECT  # imported for annotations alone, because the other module imports this one
            owner = self._structure(found.module, found.what)
            return owner.name if owner else OBJECT
        if isinstance(found.what, Assigned) and found.what.value is not None and found.what.is_alias:
            return self.of(Annotation(found.module, found.what.value))
        return OBJECT

    def returned(self, function: Annotation | None) -> str:
        """The C type of what a function returns."""
        if function is None:
            return OBJECT
        if is_none(function.node):
            return "void"
        kinds = self._parts(function)
        return f"({', '.join(kinds)})" if kinds and all(kind in NUMBERS for kind in kinds) else self.of(function)

    def _parts(self, annotation: Annotation | None) -> list[str]:
        """The C types of the members of a tuple; none if it is no tuple of a known length."""
        if annotation is None:
            return []
        node = annotation.node
        found = self._modules.find(annotation.module, node.id) if isinstance(node, ast.Name) else None
        if found is not None and isinstance(found.what, Assigned) and found.what.is_alias and found.what.value is not None:
            return self._parts(Annotation(found.module, found.what.value))
        if not isinstance(node, ast.Subscript) or ast.unparse(node.value) != "tuple" or not isinstance(node.slice, ast.Tuple):
            return []
        if any(isinstance(each, ast.Constant) and each.value is ... for each in node.slice.elts):
            return []
        return [self.of(Annotation(annotation.module, each)) for each in node.slice.elts]

    def _elements(self, annotation: Annotation | None) -> list[Annotation]:
        """The annotations of what a container holds: of keys and values, or of elements; none if they are not known."""
        if annotation is None:
            return []
        module, node = annotation.module, annotation.node
        if isinstance(node, ast.BinOp):
            rest = [each for each in members_of(node) if not is_none(each)]
            return self._elements(Annotation(module, rest[0])) if len(rest) == 1 else []
        if not isinstance(node, ast.Subscript):
            return []
        outer, inner = ast.unparse(node.value), node.slice
        if outer == "Final":
            return self._elements(Annotation(module, inner))
        if outer in MAPPINGS and isinstance(inner, ast.Tuple):
            return [Annotation(module, each) for each in inner.elts]
        if outer == "tuple" and isinstance(inner, ast.Tuple):
            inner = inner.elts[0] if ast.unparse(inner.elts[-1]) == "..." else inner
        return [Annotation(module, inner)] if outer in COLLECTIONS and not isinstance(inner, ast.Tuple) else []

    # Attributes ----------------------------------------------------------------------------------------------------------------------

    def attribute(self, kind: str, name: str) -> tuple[CompiledClass, str] | None:
        """The class that has an attribute, and its C type."""
        owner = self.classes.get(kind)
        for each in owner.lines() if owner else ():
            if name in each.slots:
                return each, self._attribute(each, name)
        return None

    def _attribute(self, owner: CompiledClass, name: str) -> str:
        if name in owner.types:
            return owner.types[name]
        if (owner.name, name) in self._open:
            self._is_cut = True
            return OBJECT  # it is made of itself
        self._open.add((owner.name, name))
        kind = self._first(owner, name)
        self._open.discard((owner.name, name))
        if not self._open:
            self._is_cut = False
        if not self._is_cut:
            owner.types[name] = kind
        return kind

    def _first(self, owner: CompiledClass, name: str) -> str:
        """The C type of the first value of an attribute; if it is annotated anywhere, then of that."""
        if annotation := self._annotated_attribute(owner, name):
            owner.annotations[name] = annotation
            return self.of(annotation)
        for method in owner.methods.values():
            for statement in statements(method):
                for target, value in assigned(statement):
                    if name not in attributes_of_target(target) or value is None:
                        continue
                    scope = self.scope(owner.module, owner, method)
                    if not isinstance(target, ast.Tuple):
                        if known := self.annotated(value, scope):
                            owner.annotations[name] = known
                        return self.inferred(value, scope)
                    kinds = self.unpacked(value, scope)
                    place = attributes_of_target(target).index(name)
                    return kinds[place] if len(kinds) == len(target.elts) else OBJECT
        return OBJECT

    def _annotated_attribute(self, owner: CompiledClass, name: str) -> Annotation | None:
        for node in owner.node.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                return Annotation(owner.module, node.annotation)
        for method in owner.methods.values():
            for statement in statements(method):
                if (
                    isinstance(statement, ast.AnnAssign)
                    and attribute_of_self(statement.target) == name
                    and not is_final(statement.annotation)
                ):
                    return Annotation(owner.module, statement.annotation)
        return None

    # Functions -----------------------------------------------------------------------------------------------------------------------

    def parameters(self, module: Module, owner: CompiledClass | None, function: ast.FunctionDef) -> Scope:
        """What is known about the parameters of a function."""
        scope = Scope(module)
        for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
            if each.annotation is not None:
                scope.annotations[each.arg] = Annotation(module, each.annotation)
                scope.types[each.arg] = self.of(scope.annotations[each.arg])
            else:
                scope.types[each.arg] = owner.name if owner and each.arg == "self" else OBJECT
        return scope

    def scope(self, module: Module, owner: CompiledClass | None, function: ast.FunctionDef) -> Scope:
        """What is known about the parameters and the variables of a function."""
        scope = self.parameters(module, owner, function)
        for statement in statements(function):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                scope.annotations.setdefault(statement.target.id, Annotation(module, statement.annotation))
                scope.types.setdefault(statement.target.id, self.of(scope.annotations[statement.target.id]))
        for statement in statements(function):
            self._bind(statement, scope)
        return scope

    def _bind(self, statement: ast.stmt, scope: Scope) -> None:
        """Note the variables that a statement gives a value."""
        if isinstance(statement, ast.For):
            self._bind_loop(statement, scope)
        for target, value in assigned(statement):
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
                pairs = [*zip(target.elts, value.elts, strict=True)]
            for each, part in pairs:
                if isinstance(each, ast.Name):
                    self._bind_one(each.id, part, scope)
            if not isinstance(target, ast.Name):
                self._bind_parts(target, self.unpacked(value, scope) if value is not None else [], scope)
        head = statement.test if isinstance(statement, ast.If | ast.While) else statement
        for node in ast.walk(head) if head is not statement or not hasattr(statement, "body") else ():
            if isinstance(node, ast.NamedExpr):
                self._bind_one(node.target.id, node.value, scope)

    def _bind_one(self, name: str, value: ast.expr | None, scope: Scope) -> None:
        if name not in scope.types:
            scope.types[name] = self.inferred(value, scope) if value is not None else OBJECT
            if value is not None and (annotation := self.annotated(value, scope)):
                scope.annotations[name] = annotation

    def _bind_parts(self, target: ast.expr, kinds: list[str], scope: Scope) -> None:
        """Note the names in a target that is unpacked."""
        if isinstance(target, ast.Name):
            scope.types.setdefault(target.id, kinds[0] if len(kinds) == 1 else OBJECT)
        elif isinstance(target, ast.Tuple):
            for number, each in enumerate(target.elts):
                self._bind_parts(each, [kinds[number]] if len(kinds) == len(target.elts) else [], scope)
        elif isinstance(target, ast.Starred):
            self._bind_parts(target.value, [], scope)

    def _bind_loop(self, loop: ast.For, scope: Scope) -> None:
        source, method, counted = loop.iter, "", False
        if isinstance(source, ast.Call) and isinstance(source.func, ast.Name) and source.args:
            if source.func.id == "range":
                self._bind_parts(loop.target, [INT], scope)
                return
            counted = source.func.id == "enumerate"
            source = source.args[0] if counted or source.func.id in ("reversed", "sorted", "list", "tuple") else source
        if isinstance(source, ast.Call) and isinstance(called := source.func, ast.Attribute) and called.attr in ("items", "values", "keys"):
            source, method = called.value, called.attr
        elements = self._elements(self.annotated(source, scope))
        if method == "items":
            chosen = elements if len(elements) == 2 else []
        else:
            chosen = elements[-1:] if method == "values" else elements[:1]
        targets: list[ast.expr] = [loop.target]
        if (counted or method == "items") and isinstance(loop.target, ast.Tuple):
            targets = [*loop.target.elts]
        if counted:
            self._bind_parts(targets.pop(0), [INT], scope)
        for target, element in zip(targets, chosen, strict=False):
            if isinstance(target, ast.Name):
                scope.annotations.setdefault(target.id, element)
            self._bind_parts(target, [self.of(element)] if isinstance(target, ast.Name) else self._parts(element), scope)
        self._bind_parts(loop.target, [], scope)

    # Expressions ---------------------------------------------------------------------------------------------------------------------

    def inferred(self, value: ast.expr, scope: Scope) -> str:
        """The C type of an expression; OBJECT if it is not known."""
        match value:
            case ast.Constant(value=constant):
                name = type(constant).__name__
                return SCALARS.get(name) or (name if name in EXACT else OBJECT)
            case ast.Name(id=name):
                return scope.types[name] if name in scope.types else self.constant(scope.module, name)
            case ast.Attribute(value=inner, attr=name):
                if place := self.named_in_module(value, scope):
                    return self.constant(*place)
                found = self.attribute(self.inferred(inner, scope), name)
                return found[1] if found else OBJECT
            case ast.List() | ast.ListComp():
                return "list"
            case ast.Dict() | ast.DictComp():
                return "dict"
            case ast.Set() | ast.SetComp():
                return "set"
            case ast.Tuple():
                return "tuple"
            case ast.Compare() | ast.UnaryOp(op=ast.Not()):
                return "bint"
            case ast.UnaryOp(operand=inner):
                return self.inferred(inner, scope)
            case ast.IfExp(body=body, orelse=other) if is_none(body) or is_none(other):
                kind = self.inferred(other if is_none(body) else body, scope)
                return OBJECT if kind in NUMBERS else kind
            case ast.IfExp(body=body, orelse=other):
                return _joined(self.inferred(body, scope), self.inferred(other, scope))
            case ast.BoolOp(values=values):
                kinds = {self.inferred(each, scope) for each in values}
                return kinds.pop() if len(kinds) == 1 else OBJECT
            case ast.BinOp(left=left, op=op, right=right):
                return _arithmetic(self.inferred(left, scope), op, self.inferred(right, scope))
            case ast.NamedExpr(value=inner):
                return self.inferred(inner, scope)
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and (kind := self._made(value, scope)):
            return kind
        if kind := self.declared(value, scope):
            return OBJECT if kind.startswith("(") else kind
        annotation = self.annotated(value, scope)
        if annotation is None:
            return OBJECT
        kind = self.of(annotation)
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or self.method(value, scope) is not None:
            return kind
        return OBJECT if kind in NUMBERS and value.func.attr == "get" and len(value.args) == 1 else kind  # it may be None

    def _made(self, call: ast.Call, scope: Scope) -> str:
        """The C type of a call of a class, or of a function of Python; empty if it is another function."""
        assert isinstance(call.func, ast.Name)
        name = call.func.id
        found = self._modules.find(scope.module, name)
        if found is not None:
            return self._named(scope.module, name) if isinstance(found.what, ast.ClassDef) else ""
        if name in ("min", "max") and len(call.args) > 1:
            kinds = {self.inferred(each, scope) for each in call.args}
            return kinds.pop() if len(kinds) == 1 and kinds <= set(NUMBERS) else OBJECT
        return INT if name == "len" else SCALARS.get(name) or (name if name in EXACT else OBJECT)

    def method(self, call: ast.Call, scope: Scope) -> tuple[CompiledClass, ast.FunctionDef] | None:
        """The method of a compiled class that a call is known to call."""
        if isinstance(call.func, ast.Attribute):
            owner = self.classes.get(self.inferred(call.func.value, scope))
            for each in owner.lines() if owner else ():
                if (method := each.methods.get(call.func.attr)) is not None:
                    return each, method
        return None

    def annotated(self, value: ast.expr, scope: Scope) -> Annotation | None:
        """The annotation of an expression, as far as it is known."""
        match value:
            case ast.Name(id=name):
                return scope.annotations.get(name)
            case ast.Attribute(value=inner, attr=name):
                found = self.attribute(self.inferred(inner, scope), name)
                return found[0].annotations.get(name) if found else None
            case ast.Subscript(value=inner, slice=index) if not isinstance(index, ast.Slice):
                return self._last_element(inner, scope)
            case ast.Call(func=ast.Name(id=name)):
                called = self._modules.find(scope.module, name)
                return returned_by(called.module, called.what) if called else None
            case ast.Call(func=ast.Attribute(value=inner, attr=name)):
                if method := self.method(value, scope):
                    return returned_by(method[0].module, method[1])
                if place := self.named_in_module(value.func, scope):
                    return returned_by(place[0], place[0].names.get(place[1]))
                if name in TAKING:
                    return self._last_element(inner, scope)
        return None

    def _last_element(self, container: ast.expr, scope: Scope) -> Annotation | None:
        """The annotation of the values of a mapping, or of the elements of another container."""
        elements = self._elements(self.annotated(container, scope))
        return elements[-1] if elements else None

    def named_in_module(self, value: ast.expr, scope: Scope) -> tuple[Module, str] | None:
        """The module and the name that an expression of the form `module.name` means."""
        if not isinstance(value, ast.Attribute) or not isinstance(value.value, ast.Name) or value.value.id in scope.types:
            return None
        module = self._module_named(scope.module, value.value.id)
        return (module, value.attr) if module else None

    def declared(self, value: ast.expr, scope: Scope) -> str:
        """The C type of a call of a function that has declarations, which people wrote; empty if it is something else."""
        place = self.named_in_module(value.func, scope) if isinstance(value, ast.Call) else None
        kind = self._modules.declared(place[0].name).functions.get(place[1], "") if place else ""
        return re.sub(r"\b(Py_ssize_t|int|u?int\d+_t)\b", INT, kind)

    def unpacked(self, value: ast.expr, scope: Scope) -> list[str]:
        """The C types of the parts of an expression that is unpacked; none if they are not known."""
        if isinstance(value, ast.Tuple):
            return [self.inferred(each, scope) for each in value.elts]
        if kind := self.declared(value, scope):
            return kind.strip("()").split(", ") if kind.startswith("(") else []
        return self._parts(self.annotated(value, scope))

    def constant(self, module: Module, name: str) -> str:
        """The C type of a name at the top level of a module; OBJECT if it changes, or is no constant."""
        found = self._modules.find(module, name)
        if found is None or not isinstance(what := found.what, Assigned) or what.value is None or what.times > 1 or what.is_alias:
            return OBJECT
        if what.annotation is not None and not is_final(what.annotation):
            return self.of(Annotation(found.module, what.annotation))
        return self.inferred(what.value, Scope(found.module))


def returned_by(module: Module, what: Definition | None) -> Annotation | None:
    """The annotation of what a function returns; None if it is no function, or has none."""
    return Annotation(module, what.returns) if isinstance(what, ast.FunctionDef) and what.returns is not None else None


def attributes_of_target(target: ast.expr) -> list[str]:
    """The attributes of the object itself that get a value; empty names for other places."""
    return [attribute_of_self(each) for each in (target.elts if isinstance(target, ast.Tuple) else [target])]


def _joined(one: str, other: str) -> str:
    if one == other:
        return one
    return max(one, other, key=NUMBERS.index) if one in NUMBERS and other in NUMBERS else OBJECT


def _arithmetic(left: str, operator: ast.operator, right: str) -> str:
    if left == "list" and isinstance(operator, ast.Mult):
        return left
    if left not in NUMBERS or right not in NUMBERS:
        return OBJECT
    kind = "double" if isinstance(operator, ast.Div) else _joined(left, right)
    return INT if kind == "bint" else kind
