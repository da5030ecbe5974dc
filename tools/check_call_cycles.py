#!/usr/bin/env python3
"""check_call_cycles.py - checks that no two source files call each other, directly or through other files.

    check_call_cycles.py NM OBJECT...     object files of the build: .../NAME.dir/src/base/pool.c.o
    check_call_cycles.py --self-test

A file uses another file if one of its undefined symbols is a function defined there; function pointers in tables count as
calls. Prints the calls of each cycle. Exit status: 1 if there is a cycle, 77 if the objects have no symbols (link-time
optimization).
"""

import re
import subprocess
import sys

# Calls that may be part of a cycle: {(file, called file): reason}. An unnecessary entry is an error.
ALLOWED = {
    ("src/layer/attention/attention_call.c", "src/layer/selection/head_count_per_sequence.c"): "one function serves all head counts",
}


def read_objects(nm, objects):
    """Returns {file: {used file: functions}} of the objects NAME.dir/FILE.o."""
    lines = subprocess.run([nm, "-A", "-P", *objects], capture_output=True, text=True, check=True).stdout.splitlines()
    defined, used = {}, []
    for line in lines:
        found = re.match(r".*\.dir/(?:\./)?(\S+)\.o: (\S+) (\w)", line)
        if found and found[3] in "TW":
            defined[found[2]] = found[1]
        elif found and found[3] == "U":
            used.append((found[1], found[2]))
    uses = {}
    for user, function in used:
        if defined.get(function, user) != user:
            uses.setdefault(user, {}).setdefault(defined[function], set()).add(function)
    return uses


def reachable(uses, start):
    seen, todo = set(), [start]
    while todo:
        for file in uses.get(todo.pop(), {}):
            if file not in seen:
                seen.add(file)
                todo.append(file)
    return seen


def cycles(uses):
    """Returns the pairs (file, used file) that are part of a cycle."""
    reach = {file: reachable(uses, file) for file in uses}
    return sorted((a, b) for a in uses for b in uses[a] if a in reach.get(b, ()))


def check(uses, allowed):
    """Yields a message for each call in a cycle, and for each unnecessary entry of `allowed`."""
    in_cycle = cycles(uses)
    for entry in sorted(set(allowed) - set(in_cycle)):
        yield f"tools/check_call_cycles.py: ALLOWED must list only calls in cycles (got {entry})"
    left = {a: {b: f for b, f in of_a.items() if (a, b) not in allowed} for a, of_a in uses.items()}
    for a, b in cycles(left):
        yield f"{a} and {b} call each other, directly or through other files: {a} calls {', '.join(sorted(left[a][b]))}"


def self_test():
    chain = {"a": {"b": {"f"}}, "b": {"c": {"g"}}}
    ring = {**chain, "c": {"a": {"h"}}, "d": {"a": {"i"}}}
    cases = [(chain, {}, 0), (ring, {}, 3), (ring, {("c", "a"): ""}, 0), (chain, {("a", "b"): ""}, 1)]
    wrong = [case for case in cases if len(list(check(case[0], case[1]))) != case[2]]
    for case in wrong:
        print(f"self-test: {case}: {list(check(case[0], case[1]))}")
    return len(wrong)


def main():
    if sys.argv[1:] == ["--self-test"]:
        return 1 if self_test() else 0
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    uses = read_objects(sys.argv[1], sys.argv[2:])
    if not uses:
        print("skipped: the object files have no symbols")
        return 77
    found = list(check(uses, ALLOWED))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
