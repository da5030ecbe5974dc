#!/usr/bin/env python3
"""check_null.py LIBRARY - every public function accepts NULL for its handles, as types.h says.

Each function that include/mha declares is called with NULL and 0 for everything, and with NULL for its first pointer
and zeroed memory for the others (unless it frees them), each call in a process of its own. A call must end
without a signal; what it returns is not checked. $CC is the C compiler (cc).
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

MAIN = r"""
#include "mha/mha.h"
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Zeros, larger than any struct, also to be written to. */
static union { max_align_t align; char bytes[1 << 16]; } memory;
%s
static const struct call { const char *name; void (*run)(void); } calls[] = {%s};

int main(void)
{
    int bad = 0;
    for (size_t n = 0; n < sizeof calls / sizeof *calls; n++) {
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            alarm(60);
            calls[n].run();
            _exit(0);
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child) return 2;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
        bad = 1;
        if (WIFSIGNALED(status)) printf("%%s: signal %%d\n", calls[n].name, WTERMSIG(status));
        else printf("%%s: exit %%d\n", calls[n].name, WEXITSTATUS(status));
    }
    return bad;
}
"""


def functions():
    """(name, [type of each parameter]) of every declaration that MHA_API marks."""
    headers = (p for p in sorted((ROOT / "include/mha").glob("*.h")) if p.name != "cluster.h")  # that of libmha_mpi
    text = "\n".join(p.read_text() for p in headers)
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"^#.*$", " ", text, flags=re.M)
    for name, parameters in re.findall(r"MHA_API[^;(]*?\b(mha_\w+)\(([^;]*)\);", text):
        yield name, [kind(p.strip()) for p in parameters.split(",")] if parameters.strip() != "void" else []


def kind(parameter):
    """The type of a parameter; an array is a pointer."""
    parameter, arrays = re.subn(r"\[[^]]*\]$", "", parameter)
    if "(" in parameter:
        raise SystemExit(f"check_null.py: cannot read the parameter {parameter!r}")
    name = re.search(r"\w+$", parameter)
    bare = parameter[: name.start()].strip()
    return bare + " *" * arrays


def call(name, kinds, given):
    """One call; the pointers but for the first are `given`, or all are NULL."""
    pointers = [n for n, k in enumerate(kinds) if k.endswith("*")]
    arguments = [
        f"({k})(void *)&memory" if given and n in pointers[1:] else f"({k}){{0}}" for n, k in enumerate(kinds)
    ]
    return f"{name}({', '.join(arguments)})"


def program():
    bodies, table = [], []
    for name, kinds in functions():
        for given in (False, True) if kinds and not name.endswith("_free") else (False,):
            function = f"call_{len(table)}"
            text = call(name, kinds, given)
            bodies.append(f"static void {function}(void)\n{{\n    (void){text};\n}}")
            table.append(f'{{"{name}{" of NULL, and memory" if given else " of NULL"}", {function}}}')
    if len(table) < 100:
        raise SystemExit("check_null.py: found too few functions in include/mha")
    return MAIN % ("\n".join(bodies), ",\n".join(table)), len(table)


def main():
    library = pathlib.Path(sys.argv[1]).resolve()
    source, count = program()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "null.c"
        path.write_text(source)
        command = [os.environ.get("CC", "cc"), "-std=gnu11", "-Wall", "-Werror", "-Wno-nonnull", f"-I{ROOT}/include",
                   str(path), "-o", folder + "/null", str(library), f"-Wl,-rpath,{library.parent}"]
        subprocess.run(command, check=True)
        ran = subprocess.run([folder + "/null"], check=False, cwd=folder)
    print(f"{count} calls with NULL")
    return ran.returncode


if __name__ == "__main__":
    sys.exit(main())
