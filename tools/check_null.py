#!/usr/bin/env python3
"""check_null.py LIBRARY - checks that every public function accepts NULL handles, as types.h promises.

Calls each function of include/mha twice, each time in a separate process: first with NULL or 0 for all arguments, then with
NULL for the first pointer and zeroed memory for the other pointers (except for functions that free memory). A call must not
raise a signal; results are not checked. $CC is the C compiler (default: cc).
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

/* Zeroed memory, larger than any struct; functions may write to it. */
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
    """Yields (name, [type of each parameter]) of every function declared with MHA_API."""
    headers = (p for p in sorted((ROOT / "include/mha").glob("*.h")) if not p.name.startswith("cluster"))  # cluster*.h declare libmha_mpi
    text = "\n".join(p.read_text() for p in headers)
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"^#.*$", " ", text, flags=re.M)
    for name, parameters in re.findall(r"MHA_API[^;(]*?\b(mha_\w+)\(([^;]*)\);", text):
        yield name, [kind(p.strip()) for p in parameters.split(",")] if parameters.strip() != "void" else []


def kind(parameter):
    """Returns the type of a parameter; arrays become pointers."""
    parameter, arrays = re.subn(r"\[[^]]*\]$", "", parameter)
    if "(" in parameter:
        raise SystemExit(f"check_null.py: cannot parse the parameter {parameter!r}")
    name = re.search(r"\w+$", parameter)
    bare = parameter[: name.start()].strip()
    return bare + " *" * arrays


def call(name, kinds, given):
    """Returns the code of a call: all pointers NULL, or, if `given`, only the first pointer NULL."""
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
            table.append(f'{{"{name}{" with NULL and zeroed memory" if given else " with NULL"}", {function}}}')
    if len(table) < 100:
        raise SystemExit(f"check_null.py: include/mha must yield at least 100 calls (got {len(table)})")
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
    print(f"checked {count} calls with NULL")
    return ran.returncode


if __name__ == "__main__":
    sys.exit(main())
