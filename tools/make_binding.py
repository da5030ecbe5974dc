#!/usr/bin/env python3
"""make_binding.py [--check] - writes python/mha/_binding/abi.py, which declares every struct, constant, function type and function of include/mha
for ctypes. --check compares the file with the headers instead, and fails if it is out of date.

$CC (default: cc) preprocesses the headers. The parser below reads their declarations and exits at unknown syntax.
tests/python/test_abi.py compares sizes, offsets and constants of abi.py with those of the compiler.

    C type                                      ctypes
    integer, floating and enum types            c_int64, c_double, c_int ...
    const char *                                c_char_p; c_void_p in callbacks if a length follows, and as the result of a
                                                function that also writes a length (no terminator)
    pointer to a struct whose fields are public POINTER(Class)
    any other pointer                           c_void_p, or POINTER(c_void_p) if the callee stores a pointer
    function pointer                            CFUNCTYPE
"""
import keyword
import os
import re
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "python/mha/_binding/abi.py"
SCALARS = {"char": "c_char", "int": "c_int", "size_t": "c_size_t", "double": "c_double", "float": "c_float"}
SCALARS |= {f"{sign}int{bits}_t": f"c_{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}

Pointer = namedtuple("Pointer", "to")
Array = namedtuple("Array", "of count")
Function = namedtuple("Function", "result parameters")  # `parameters` is a list of (name, type)
Name = namedtuple("Name", "name const")


def preprocessed():
    """Returns the tokens of the declarations in include/mha, and the integers defined by macros."""
    command = [os.environ.get("CC", "cc"), "-E", "-dD", f"-I{ROOT}/include", str(ROOT / "include/mha/mha.h")]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    ours, lines, macros = False, [], {}
    for line in text.splitlines():
        marker = re.match(r'# \d+ "(.*?)"', line)
        if marker:
            ours = "/include/mha/" in marker[1] and str(ROOT) in marker[1]
        elif ours and line.startswith("#"):
            number = re.match(r"#define (MHA_\w+) \(?(-?\d+)\)?$", line)
            if number:
                macros[number[1]] = int(number[2])
        elif ours:
            lines.append(line)
    text = re.sub(r"__attribute__\(\(.*?\)\)\)|extern \"C\" \{", "@API ", "\n".join(lines))
    return re.findall(r"@API|\w+|<<|\S", text), macros


class Reader:
    """Parses the declarations into structs, function types, functions and constants, in the order of the headers."""

    def __init__(self):
        self.tokens, self.constants = preprocessed()
        self.at = 0
        self.enums, self.opaque, self.order, self.functions = set(), set(), [], {}
        self.structs, self.function_types, self.aliases = {}, {}, {}
        while self.at < len(self.tokens):
            self.declaration()

    def peek(self):
        return self.tokens[self.at]

    def take(self, wanted=None):
        token = self.tokens[self.at]
        if wanted is not None and token != wanted:
            raise SystemExit(f"make_binding.py: the next token must be {wanted!r} (got {token!r} in {' '.join(self.tokens[self.at - 8:self.at + 8])!r})")
        self.at += 1
        return token

    def accept(self, wanted):
        if self.peek() != wanted:
            return False
        self.at += 1
        return True

    def declaration(self):
        if self.accept("typedef"):
            self.typedef()
        elif self.peek() == "enum":
            self.take()
            self.enumerators()
            self.take(";")
        else:
            self.take("@API")
            name, kind = self.declarator(self.base())
            self.take(";")
            self.functions[name] = kind

    def typedef(self):
        kind = self.peek()
        if kind in ("struct", "enum") and self.tokens[self.at + 2] == "{":
            self.at += 2
            fields = self.fields() if kind == "struct" else self.enumerators()
            name = self.take()
            self.take(";")
            if kind == "struct":
                self.opaque.discard(name)
                self.structs[name] = fields
                self.order.append(name)
            else:
                self.enums.add(name)
            return
        name, target = self.declarator(self.base())
        self.take(";")
        if isinstance(target, Pointer) and isinstance(target.to, Function):
            self.function_types[name] = target.to
            self.order.append(name)
        elif kind == "struct":
            self.opaque.add(name)
        else:
            self.aliases[name] = target

    def fields(self):
        self.take("{")
        found = []
        while not self.accept("}"):
            base = self.base()
            found.append(self.declarator(base))
            while self.accept(","):
                found.append(self.declarator(base))
            self.take(";")
        return found

    def enumerators(self):
        self.take("{")
        value = -1
        while not self.accept("}"):
            name, value = self.take(), value + 1
            if self.accept("="):
                words = []
                while self.peek() not in (",", "}"):
                    words.append(self.take())
                value = eval(" ".join(words), {}, self.constants)
            self.constants[name] = value
            self.accept(",")

    def base(self):
        const = self.accept("const")
        self.accept("struct")
        name = self.take()
        if not re.match(r"[a-z]", name):
            raise SystemExit(f"make_binding.py: the next token must be a type (got {name!r})")
        return Name(name, self.accept("const") or const)

    def declarator(self, kind):
        """Returns (name, type) of the declarator after the base type `kind`; the name of an unnamed parameter is ''."""
        while self.accept("*"):
            kind = Pointer(kind)
            self.accept("const")
        if self.peek() == "(":  # a function pointer: (*name)(parameters)
            self.take()
            self.take("*")
            name = self.take()
            self.take(")")
            return name, Pointer(Function(kind, self.parameters()))
        name = self.take() if re.match(r"\w", self.peek()) else ""
        if self.peek() == "(":
            return name, Function(kind, self.parameters())
        counts = []
        while self.accept("["):
            counts.append(self.count(self.take()))
            self.take("]")
        for count in reversed(counts):
            kind = Array(kind, count)
        return name, kind

    def count(self, token):
        return int(token) if token.isdigit() else self.constants[token]

    def parameters(self):
        self.take("(")
        if self.peek() == "void" and self.tokens[self.at + 1] == ")":
            self.at += 2
            return []
        found = []
        while not self.accept(")"):
            found.append(self.declarator(self.base()))
            self.accept(",")
        return found


def class_name(name):
    return "".join(word.capitalize() for word in name.removeprefix("mha_").split("_")).replace("Cview", "View")


def python_name(field):
    return field + "_" if keyword.iskeyword(field) else field


class Writer:
    def __init__(self, reader):
        self.reader = reader

    def is_length(self, kind):
        """Returns whether a type is size_t or a pointer to it."""
        return kind in (Name("size_t", False), Pointer(Name("size_t", False)))

    def expression(self, kind, following=None, callback=False):
        """Returns the ctypes expression for a type; `following` is the type of the next parameter."""
        r = self.reader
        if isinstance(kind, Array):
            return f"{self.expression(kind.of)} * {kind.count}"
        if isinstance(kind, Function):
            return self.function_type(kind)
        if isinstance(kind, Name):
            return self.named(kind.name)
        to = kind.to
        if isinstance(to, Function):
            return self.function_type(to)
        if to == Name("char", True):
            return "c_void_p" if callback and self.is_length(following) else "c_char_p"
        if isinstance(to, Pointer):
            if to.to == Name("char", True) and not self.is_length(following):
                return "POINTER(c_char_p)"
            inner = self.expression(to)
            return f"POINTER({inner})" if inner.startswith("POINTER") else "POINTER(c_void_p)"
        name = self.resolved(to.name)
        return f"POINTER({class_name(name)})" if name in r.structs else "c_void_p"

    def resolved(self, name):
        target = self.reader.aliases.get(name)
        return target.name if target else name

    def named(self, name):
        r, name = self.reader, self.resolved(name)
        if name == "void":
            return "None"
        if name in r.structs or name in r.function_types:
            return class_name(name)
        if name in r.enums:
            return "c_int"
        if name not in SCALARS:
            raise SystemExit(f"make_binding.py: types passed by value must be known and have public fields (got {name!r})")
        return SCALARS[name]

    def decayed(self, kind):
        return Pointer(kind.of) if isinstance(kind, Array) else kind

    def result(self, function):
        """Returns the ctypes expression for the result of a function."""
        lengths = any(kind == Pointer(Name("size_t", False)) for _, kind in function.parameters)
        return "c_void_p" if lengths and function.result == Pointer(Name("char", True)) else self.expression(function.result)

    def parameters(self, function, callback):
        kinds = [self.decayed(kind) for _, kind in function.parameters]
        return [self.expression(kind, following, callback) for kind, following in zip(kinds, kinds[1:] + [None])]

    def function_type(self, function):
        return f"CFUNCTYPE({', '.join([self.expression(function.result)] + self.parameters(function, True))})"

    def annotation(self, expression):
        """Returns the Python type of a field when it is read."""
        if expression.startswith("CFUNCTYPE"):
            return "Any"
        if expression.startswith("c_char *"):
            return "_Bytes"
        if " * " in expression:
            return f"ctypes.Array[{expression.split(' * ')[0]}]"
        if expression.startswith("POINTER("):
            return f"ctypes._Pointer[{expression[8:-1]}]"
        known = {"c_char_p": "_Bytes | None", "c_void_p": "int | None", "c_double": "float", "c_float": "float"}
        if expression in known:
            return known[expression]
        if expression.startswith("c_"):
            return "int"
        return "Any" if any(class_name(n) == expression for n in self.reader.function_types) else expression

    def struct(self, name):
        fields = [(python_name(field), self.expression(kind)) for field, kind in self.reader.structs[name]]
        yield f"class {class_name(name)}(ctypes.Structure):"
        yield from (f"    {field}: {self.annotation(expression)}" for field, expression in fields)
        if any(re.search(rf"\b{class_name(name)}\b", expression) for _, expression in fields):
            yield from ("", "", f"{class_name(name)}._fields_ = [")  # the fields refer to the class itself
            yield from (f'    ("{field}", {expression}),' for field, expression in fields)
            yield "]"
            return
        yield "    _fields_ = ["
        yield from (f'        ("{field}", {expression}),' for field, expression in fields)
        yield "    ]"

    def lines(self):
        yield '"""The declarations of the public headers for ctypes. Generated by tools/make_binding.py: do not edit.'
        yield ""
        yield 'Names lack the prefix mha_ or MHA_; structs are in CamelCase."""'
        yield "# ruff: noqa: I001"
        yield "from __future__ import annotations"
        yield ""
        yield "import ctypes"
        used = sorted({w for text in self.body() for w in re.findall(r"\b(?:c_\w+|CFUNCTYPE|POINTER)\b", text)})
        yield f"from ctypes import {', '.join(used)}"
        yield "from typing import Any"
        yield ""
        yield "_Bytes = bytes  # some fields are named bytes"
        yield from self.body()

    def body(self):
        r = self.reader
        yield from (f"{name.removeprefix('MHA_')} = {value}" for name, value in r.constants.items())
        for name in r.order:
            if name == "mha_view":  # mha_view has the fields of mha_cview, without const
                assert [f for f, _ in r.structs[name]] == [f for f, _ in r.structs["mha_cview"]]
                continue
            yield ""
            if name in r.structs:
                yield ""
                yield from self.struct(name)
            else:
                yield f"{class_name(name)} = {self.function_type(r.function_types[name])}"
        yield ""
        yield "STRUCTS: dict[str, type[ctypes.Structure]] = {"
        yield from (f'    "{name}": {class_name(name)},' for name in r.structs)
        yield "}"
        yield ""
        yield "# name: (result, parameters)"
        yield "FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {"
        for name, function in r.functions.items():
            yield f'    "{name}": ({self.result(function)}, [{", ".join(self.parameters(function, False))}]),'
        yield "}"


def main():
    text = "\n".join(Writer(Reader()).lines()) + "\n"
    if sys.argv[1:] == ["--check"]:
        if OUTPUT.read_text(encoding="utf-8") == text:
            return 0
        print(f"{OUTPUT.relative_to(ROOT)} must match the headers: run tools/make_binding.py")
        return 1
    if sys.argv[1:]:
        print("usage: make_binding.py [--check]", file=sys.stderr)
        return 2
    OUTPUT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
