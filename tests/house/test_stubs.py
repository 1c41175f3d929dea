"""mooncake_store/_core.pyi says what the built module has: every name, parameter, default and plain type.

Both are read as syntax: the stub file, and the signatures that nanobind keeps of each function. stubtest
cannot do this, because it sees no signature of a nanobind function.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mooncake_store import _core

STUB = Path(__file__).resolve().parents[2] / "mooncake_store" / "_core.pyi"

# Types that both sides write alike. `object` says less than the stub; `list` is compared without its items.
PLAIN = ("int", "float", "bool", "str", "bytes", "None", "list", "tuple", "dict")

Function = ast.FunctionDef
Members = dict[str, list[Function]]


TREE = ast.parse(STUB.read_text(encoding="utf-8"))
CLASSES = {node.name: node for node in TREE.body if isinstance(node, ast.ClassDef)}


def is_typed_dict(name: str) -> bool:
    """A class of the stub alone: what a plain dict holds."""
    bases = [ast.unparse(base) for base in CLASSES[name].bases] if name in CLASSES else []
    return any(base == "TypedDict" or is_typed_dict(base) for base in bases)


def scopes_of_stub() -> dict[str, Members]:
    """The functions of each scope by name ("" is the module), several where they are overloads."""
    bodies = {"": TREE.body} | {name: node.body for name, node in CLASSES.items()}
    scopes: dict[str, Members] = {}
    for scope, body in bodies.items():
        if not is_typed_dict(scope):
            scopes[scope] = {}
            for node in body:
                if isinstance(node, Function):
                    scopes[scope].setdefault(node.name, []).append(node)
                elif scope and isinstance(node, ast.AnnAssign):
                    scopes[scope][ast.unparse(node.target)] = []  # a constant: its name is compared
    return scopes


def signatures_of(value: Any) -> list[Function]:
    """What nanobind remembers of a function or of a property's getter."""
    getter = value.fget if isinstance(value, property) else value
    found = []
    for text, _, defaults in getter.__nb_signature__:
        filled = re.sub(r"^def \(", "def getter(", text)
        for index, default in reversed(list(enumerate(defaults or ()))):
            filled = filled.replace(f"\\{index}", repr(default))
        (node,) = ast.parse(f"{filled}: ...").body
        assert isinstance(node, Function)
        found.append(node)
    return found


def parameters(function: Function) -> dict[str, tuple[str, str | None]]:
    """Kind and default of each but self; a default that the stub leaves open is `...`."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + [*arguments.defaults]
    rows: list[tuple[ast.arg, str, ast.expr | None]] = [
        (argument, "positional", default) for argument, default in zip(positional, defaults, strict=True)
    ]
    rows += [
        (argument, "keyword", default)
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    rows += [(argument, "rest", None) for argument in (arguments.vararg, arguments.kwarg) if argument]
    return {
        argument.arg: (kind, None if default is None else ast.unparse(default))
        for argument, kind, default in rows
        if argument.arg != "self"
    }


def form_differences(scope: str, name: str, stub: list[Function], member: object) -> list[str]:
    """A property or a static method is one on both sides."""
    said = {ast.unparse(decorator) for decorator in stub[0].decorator_list} - {"overload"}
    real = {"property"} if isinstance(member, property) else set()
    if scope and type(member).__name__ == "nb_func":
        real = {"staticmethod"}
    return [] if said == real else [f"{scope}.{name}: the stub says {said}, built {real}"]


def differences(where: str, stub: list[Function], native: list[Function]) -> Iterator[str]:
    """Overloads of the stub are the possible calls of one native function."""
    shown: dict[str, set[str]] = {}
    rows: dict[str, tuple[str, str | None]] = {}
    for function in stub:
        for name, (kind, default) in parameters(function).items():
            shown.setdefault(name, set()).add(default or "")
            rows[name] = (kind, default)
    (built,) = native
    real = parameters(built)
    if [kind for kind, _ in real.values()] == ["rest"]:
        return  # it looks the names up itself, and refuses those it does not know
    if list(rows) != list(real):
        yield f"{where}: parameters {list(rows)}, built {list(real)}"
        return
    for name, (kind, default) in real.items():
        if kind != rows[name][0]:
            yield f"{where}({name}): {rows[name][0]}, built {kind}"
        said = {ast.dump(ast.parse(text)) for text in shown[name] if text}
        if len(stub) == 1 and bool(said) != (default is not None):
            yield f"{where}({name}): default {rows[name][1]}, built {default}"
        is_open = not said or "..." in shown[name]
        if default is not None and not is_open and not same_default(shown[name], default):
            yield f"{where}({name}): default {sorted(shown[name])}, built {default}"
    for function in stub:
        yield from type_differences(where, function, built)


def same_default(shown: set[str], built: str) -> bool:
    """One of them; an empty list of nanobind's is written `()` in the stub, which nobody can change."""
    values = [ast.literal_eval(text) for text in shown if text]
    real = ast.literal_eval(built)
    return real in values or (real == [] and () in values)


def type_differences(where: str, stub: Function, built: Function) -> Iterator[str]:
    pairs = [("return", stub.returns, built.returns)]
    annotated = {argument.arg: argument.annotation for argument in all_arguments(built)}
    pairs += [
        (argument.arg, argument.annotation, annotated.get(argument.arg))
        for argument in all_arguments(stub)
        if argument.arg != "self"
    ]
    for name, said, real in pairs:
        if said is None or real is None:
            continue
        real_text, said_text = ast.unparse(real), ast.unparse(said)
        means = "dict" if is_typed_dict(said_text) else said_text
        if literal := re.fullmatch(r"Literal\[(.*)\]", said_text):
            means = type(ast.literal_eval(literal[1])).__name__
        if real_text in PLAIN and not re.match(rf"{real_text}\b", means):
            yield f"{where}({name}): {said_text}, built {real_text}"


def all_arguments(function: Function) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def public(names: Any) -> set[str]:
    return {name for name in names if not name.startswith("_")}


SCOPES = scopes_of_stub()


def test_stub_and_module_have_the_same_classes_and_functions() -> None:
    classes = {name for name, value in vars(_core).items() if isinstance(value, type)}
    functions = public(vars(_core)) - classes
    assert set(SCOPES) - {""} == public(classes)
    assert set(SCOPES[""]) == functions


@pytest.mark.parametrize("scope", sorted(SCOPES))
def test_stub_says_what_is_built(scope: str) -> None:
    owner: ModuleType | type = getattr(_core, scope) if scope else _core
    members = vars(owner)
    if scope:
        assert public(members) == public(SCOPES[scope])
    told = [
        line
        for name, stub in SCOPES[scope].items()
        if stub
        for line in form_differences(scope, name, stub, members[name])
        or differences(f"{scope or '_core'}.{name}", stub, signatures_of(members[name]))
    ]
    assert told == []


def test_a_wrong_stub_is_seen() -> None:
    """A parameter too few, another name, default, kind or type, and another answer."""
    built = signatures_of(_core.crc32c)
    for wrong in (
        "def crc32c(data: bytes) -> int: ...",
        "def crc32c(data: bytes, start: int = 0) -> int: ...",
        "def crc32c(data: bytes, crc: int = 1) -> int: ...",
        "def crc32c(data: bytes, crc: int) -> int: ...",
        "def crc32c(data: bytes, *, crc: int = 0) -> int: ...",
        "def crc32c(data: bytes, crc: str = 0) -> int: ...",
        "def crc32c(data: bytes, crc: int = 0) -> bytes: ...",
    ):
        (stub,) = ast.parse(wrong).body
        assert isinstance(stub, Function)
        assert list(differences("crc32c", [stub], built)), wrong
