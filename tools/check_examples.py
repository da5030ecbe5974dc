#!/usr/bin/env python3
"""check_examples.py - checks that every call in an example of the public headers names a declared function and passes as many
arguments as it has parameters. Examples are lines of a comment indented by five columns; "..." stands for any arguments.
"""

import pathlib
import re
import sys

HEADERS = sorted((pathlib.Path(__file__).resolve().parent.parent / "include/mha").glob("*.h"))


def prototypes():
    """Returns {name: number of parameters} of all functions declared with MHA_API."""
    text = "\n".join(re.sub(r"/\*.*?\*/", " ", p.read_text(), flags=re.S) for p in HEADERS)
    found = re.findall(r"MHA_API[^;(]*?\b(mha_\w+)\(([^;]*)\);", text)
    return {name: 0 if given.strip() == "void" else given.count(",") + 1 for name, given in found}


def example(comment):
    """Returns the code lines of a comment."""
    lines = [re.sub(r"^\s*(/\*| \*|\*)", "", line) for line in comment.split("\n")]
    return "\n".join(line for line in lines if line.startswith("     "))


def arguments(text):
    """Returns the arguments of a call; `text` begins after the opening parenthesis."""
    depth, given, rest = 0, [""], iter(text)
    for c in rest:
        if c in ")]}" and depth == 0:
            break
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            given.append("")
        else:
            given[-1] += c
    return [g.strip() for g in given if g.strip()]


def faults(header, known):
    """Returns a message for each wrong call, and the number of calls."""
    wrong, count = [], 0
    for comment in re.findall(r"/\*.*?\*/", header.read_text(), flags=re.S):
        code = example(comment)
        for call in re.finditer(r"\b(mha_\w+)\(", code):
            name, given = call.group(1), arguments(code[call.end():])
            count += 1
            if name not in known:
                wrong.append(f"{header.name}: an example calls the undeclared function {name}")
            elif "..." not in given and len(given) != known[name]:
                wrong.append(f"{header.name}: {name} must have {known[name]} arguments (an example has {len(given)})")
    return wrong, count


def main():
    known, total, status = prototypes(), 0, 0
    for header in HEADERS:
        wrong, count = faults(header, known)
        total += count
        for sentence in wrong:
            print(sentence)
            status = 1
    if total < 40:
        print(f"examples must contain at least 40 calls (got {total})")
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
