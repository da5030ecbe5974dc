#!/usr/bin/env python3
"""check_includes.py - checks the rules of the source tree that a compiler does not check.

The rules (include_rules.py) define which folders may include each other, use intrinsics, detect CPU features, open files,
allocate memory, start threads or print. File names in messages must be quoted. Prints FILE:LINE and a message for each violation, and exits 1 if there is one. `--self-test`
checks that each rule finds its violation.
"""

import pathlib
import re
import sys

from include_rules import (
    CONFORMANCE_SEES,
    CPU_HEADER,
    CROWDED,
    DATA,
    FILES_MAX,
    FOLDERS,
    FORBIDDEN,
    GOES_RIGHT,
    INSIDERS,
    INTRINSIC_HEADER,
    NAMED_ONCE,
    PUBLIC_OWNER,
    REACH,
    STANDARD,
    SUBFOLDERS,
    TAGGED_ONCE,
    UMBRELLA,
    UMBRELLA_USERS,
)

# ---- checks ----


def without_comments(text):
    """Returns the code with comments and the contents of strings blanked; line numbers stay the same."""
    token = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)

    def blank(match):
        found = match.group()
        if found[0] == '"':
            return '""'
        return re.sub(r"[^\n]", " ", found)

    return token.sub(blank, text)


CALL = re.compile(r'\bmha__fail\(((?:[^;"]|"(?:\\.|[^"\\])*")*)\);')
BARE_NAME = re.compile(r",\s*((?:\w+(?:->|\.))*(?:path|folder|state)|mha_file_path\([^()]*\))\s*(?=,|$)")


def unquoted_names(text):
    """Yields (line, name) for each file name in a message that does not pass through mha__quote: a variable or field named path,
    folder or state, or a call of mha_file_path."""
    for call in CALL.finditer(text):
        arguments = re.sub(r"\bmha__quote\w*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", "quoted", without_comments(call[1]))
        for name in BARE_NAME.findall(arguments):
            yield text.count("\n", 0, call.start()) + 1, name


def check_public(folder, header, path):
    """Checks that a file in a folder of src/, or a public header, may include this public header."""
    if header == UMBRELLA:
        return None if path in UMBRELLA_USERS else f"{UMBRELLA} is for code outside the library; include the required header"
    stem = pathlib.PurePath(header).stem
    owner = PUBLIC_OWNER.get(stem, stem)
    if owner not in REACH[folder]:
        return f"{folder} may not include {header}, which is to its right"
    return None


def check_subfolders(path, name):
    """Checks that #include "name" names a header in a subfolder to the left."""
    if (path, name) in GOES_RIGHT:
        return None
    if path.startswith("cli/") and name.startswith("conformance/"):
        return f'cli may not include "{name}", which is to its right'
    if path.startswith("conformance/") and not name.startswith(("conformance/", "mha/")):
        seen = "/" not in name or name.split("/")[0] in CONFORMANCE_SEES
        return None if seen else f'conformance may include only {", ".join(CONFORMANCE_SEES[1:])} of cli (got "{name}")'
    for folder, order in SUBFOLDERS.items():
        within = folder.removeprefix("src/").removeprefix("mpi/") + "/" if folder not in ("cli", "mpi") else ""
        if not path.startswith(folder + "/") or not name.startswith(within):
            continue
        rest = [str(path).removeprefix(folder + "/"), name.removeprefix(within)]
        subfolders = [place.split("/")[0] if "/" in place else "." for place in rest]
        if subfolders[0] in order and subfolders[1] in order and order.index(subfolders[1]) > order.index(subfolders[0]):
            return f'{folder}/{subfolders[0]} may not include "{name}", which is to its right'
    return None


def check_quoted(path, name):
    """Checks #include "name"."""
    parts = pathlib.PurePath(path).parts
    target = name.split("/")[0] if "/" in name else None
    if ".." in name.split("/"):
        return f'"{name}" must be a path from the root, without ..'
    if parts[0] == "src":
        if target == "mha":
            return check_public(parts[1], name, path)
        if target in REACH and target not in REACH[parts[1]]:
            return f'{parts[1]} may not include "{name}", which is to its right'
        return None
    if parts[0] in ("cli", "conformance") and target in SUBFOLDERS["cli"]:
        return None
    if target in REACH and not path.startswith(INSIDERS):
        return f'"{name}" is internal to the library; include only headers in include/mha'
    if parts[0] == "include" and target == "mha" and path != "include/" + UMBRELLA:
        return check_public(PUBLIC_OWNER.get(pathlib.PurePath(path).stem, pathlib.PurePath(path).stem), name, path)
    return None


def check_angled(path, name):
    """Checks #include <name>."""
    if INTRINSIC_HEADER.fullmatch(name):
        return None if path.startswith("src/kernel/") else f"<{name}> may be included only in src/kernel"
    if CPU_HEADER.fullmatch(name):
        return None if path == "src/base/cpu.c" else f"<{name}> may be included only in src/base/cpu.c"
    if name == "jansson.h" and re.match(r"src/(?!base|math|kernel|attn)", path):
        return "<jansson.h>: the library must read and write JSON by io/json/json.h and io/json/json_write.h"
    if re.match(r"src/(base|math|kernel|attn)/|include/", path) and name.removesuffix(".h") not in STANDARD:
        return f"<{name}>: the operator and the public headers may use only libc, libm and threads"
    return None


def check_file(path, text):
    """Returns [(line, message)] for one file; `path` is relative to the root, with slashes."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        include = re.match(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', line)
        if include:
            name = include[1]
            message = check_quoted(path, name) or check_subfolders(path, name) if name else check_angled(path, include[2])
            if message:
                found.append((number, message))
    if path.startswith("src/"):
        for number, line in enumerate(without_comments(text).splitlines(), 1):
            for within, allowed, pattern, message in FORBIDDEN:
                hit = pattern.search(line) if path.startswith(within) and not path.startswith(tuple(allowed)) else None
                if hit:
                    found.append((number, f"{hit[0].rstrip(' (')}: {message}"))
        found += [(line, f"{name}: file names in messages must pass through mha__quote") for line, name in unquoted_names(text)]
    return found


def stale_rules(root):
    """Returns the rules that name a file, folder or header that does not exist, since such a rule has no effect."""
    places = [*FOLDERS, *INSIDERS, *UMBRELLA_USERS, "include/" + UMBRELLA]
    places += [place for within, allowed, _, _ in FORBIDDEN for place in [within, *allowed]]
    places += [f"include/mha/{header}.h" for header in PUBLIC_OWNER]
    places += [f"src/{folder}/" for folder in {*REACH, *PUBLIC_OWNER.values()}]
    places += [f"{folder}/{subfolder}/" for folder, subfolders in SUBFOLDERS.items() for subfolder in subfolders]
    places += [*CROWDED, *DATA]
    stale = [place for place in sorted(set(places)) if not (root / place).exists()]
    return stale + [f"{path} with {name}" for path, name in sorted(GOES_RIGHT) if not includes(root / path, name)]


def includes(path, name):
    """Returns whether the file exists and includes "name"."""
    return path.exists() and f'#include "{name}"' in path.read_text(encoding="utf-8")


def unlisted_subfolders(root):
    """Yields the subfolders that SUBFOLDERS does not list, and FOLDER/. if it does not list the files of a folder."""
    for folder, subfolders in SUBFOLDERS.items():
        if "." not in subfolders and any((root / folder).glob("*.[ch]")):
            yield f"{folder}/."
        for subfolder in sorted((root / folder).iterdir()):
            if subfolder.is_dir() and subfolder.name not in subfolders and any(subfolder.rglob("*.[ch]")):
                yield f"{folder}/{subfolder.name}"


def shared_names(paths):
    """Yields a message for each base name of .c and .h files that is used in two folders."""
    folders = {}
    for path in map(pathlib.PurePosixPath, sorted(paths)):
        if path.suffix in (".c", ".h") and path.parts[0] in NAMED_ONCE:
            folders.setdefault(path.stem, []).append(path)
    for stem, found in folders.items():
        if len({path.parent for path in found}) > 1:
            yield f"the base name {stem} must be used in only one folder (got {', '.join(map(str, found))})"
    for header in (pathlib.PurePosixPath(path) for path in paths if path.startswith("include/")):
        for path in folders.get(header.stem, []):
            if path.parts[0] not in ("src", "mpi"):
                yield f"{path}: the base name must differ from that of {header}"


def shared_tags(texts):
    """Yields a message for each mha_ tag of a struct, union or enum that is defined twice; texts: {path: text}."""
    places = {}
    for path, text in sorted(texts.items()):
        if path.split("/")[0] in TAGGED_ONCE:
            for tag in re.findall(r"\b(?:struct|union|enum)\s+(mha_\w+)\s*\{", without_comments(text)):
                places.setdefault(tag, []).append(path)
    for tag, found in sorted(places.items()):
        if len(found) > 1:
            yield f"the tag {tag} must be defined only once (got {', '.join(found)})"


def crowded(counts):
    """Yields a message for each folder with too many files, and for each unnecessary exception; counts: {folder: files}."""
    for folder, count in sorted(counts.items()):
        if count > FILES_MAX and folder not in CROWDED and not f"{folder}/".startswith(DATA):
            yield f"{folder} must have at most {FILES_MAX} files (got {count}): add subfolders"
    for folder in sorted(CROWDED):
        if counts.get(folder, 0) <= FILES_MAX:
            yield f"tools/include_rules.py: CROWDED must list only folders with more than {FILES_MAX} files (got {folder})"


def count_files(root):
    """Returns {folder: number of files}, without build folders and hidden folders."""
    counts = {}
    for top in sorted(root.iterdir()):
        if top.is_dir() and top.name != "build" and not top.name.startswith("."):
            for path in top.rglob("*"):
                if path.is_file() and path.name != "README.md" and "__pycache__" not in path.parts:
                    folder = path.parent.relative_to(root).as_posix()
                    counts[folder] = counts.get(folder, 0) + 1
    return counts


def check_tree(root):
    """Prints each violation below root and returns their number; a tree without source files is also a violation."""
    count = 0
    for place in stale_rules(root):
        print(f"tools/include_rules.py: a rule names {place}, which must exist")
        count += 1
    for subfolder in unlisted_subfolders(root):
        print(f"tools/include_rules.py: SUBFOLDERS must list {subfolder}")
        count += 1
    paths = [path.relative_to(root).as_posix() for top in FOLDERS for path in (root / top).rglob("*")]
    texts = {path: (root / path).read_text(encoding="utf-8") for path in sorted(paths) if path.endswith((".c", ".h", ".inc"))}
    for message in [*crowded(count_files(root)), *shared_names(paths), *shared_tags(texts)]:
        print(message)
        count += 1
    for name, text in texts.items():
        for line, message in check_file(name, text):
            print(f"{name}:{line}: {message}")
            count += 1
    if not texts:
        print(f"{root}: must contain source files")
    return count or not texts


# ---- self-test: (path, text, part of the expected message, or None if there is no violation) ----

SAMPLES = [
    ("src/attn/fwd.c", '#include "kernel/kernel.h"\n#include "mha/attn.h"\n#include <math.h>', None),
    ("src/kernel/x.c", '#include "attn/plan/plan.h"', "is to its right"),
    ("src/io/x.c", '#include "kernel/kernel.h"', "is to its right"),
    ("src/layer/x.c", '#include "layer/block/transformer_block.h"', "is to its right"),
    ("src/layer/block/x.c", '#include "layer/elementwise.h"', None),
    ("mpi/library/x.c", '#include "program/launch.h"', "is to its right"),
    ("mpi/library/x.c", '#include "library/model/key_layout.h"', "is to its right"),
    ("mpi/library/model/x.c", '#include "library/shard_call.h"', None),
    ("src/model/x.c", '#include "text/text.h"\n#include "layer/layer.h"', None),
    ("src/layer/x.c", '#include "io/json/json.h"', "is to its right"),
    ("src/base/x.c", '#include "mha/model.h"', "is to its right"),
    ("src/base/x.c", '#include "mha/ctx.h"', None),
    ("src/attn/x.c", '#include "mha/mha.h"', "for code outside"),
    ("src/attn/x.c", '#include "../base/ctx.h"', "must be a path from the root"),
    ("src/attn/x.c", "#include <jansson.h>", "libc, libm and threads"),
    ("src/io/x.c", "#include <jansson.h>", "io/json/json.h"),
    ("include/mha/attn.h", '#include "mha/model.h"', "is to its right"),
    ("include/mha/attn.h", "#include <cairo.h>", "libc, libm and threads"),
    ("cli/x.c", '#include "base/ctx.h"', "include only headers in include/mha"),
    ("cli/x.c", '#include "mha/mha.h"\n#include "output.h"\nint f(void) { return printf("x"); }', None),
    ("examples/x.c", '#include "kernel/kernel.h"', "include only headers in include/mha"),
    ("bench/kernel.c", '#include "kernel/kernel.h"', None),
    ("bench/attn.c", '#include "kernel/kernel.h"', "include only headers in include/mha"),
    ("tests/unit/test_x.c", '#include "base/ctx.h"', None),
    ("tests/cli/x.c", '#include "base/ctx.h"', "include only headers in include/mha"),
    ("src/kernel/x.c", "#include <immintrin.h>\n__m256 f(void) { return _mm256_setzero_ps(); }", None),
    ("src/attn/x.c", "#include <arm_neon.h>", "only in src/kernel"),
    ("src/attn/x.c", "\n__m512 x;", "only in src/kernel"),
    ("src/layer/x.c", "\nvoid f(void) { vaddq_f32(a, b); }", "only in src/kernel"),
    ("src/base/cpu.c", "#include <cpuid.h>\nint f(void) { return __get_cpuid(1, a, b, c, d); }", None),
    ("src/kernel/kernel_select.c", "#include <cpuid.h>", "only in src/base/cpu.c"),
    ("src/kernel/kernel_select.c", '\nint f(void) { return __builtin_cpu_supports("avx2"); }', "CPU features must"),
    ("src/model/x.c", "\nvoid f(void) { fopen(a, b); }", "files must be opened"),
    ("src/model/x.c", "\nvoid f(void) { open (a, b); }", "files must be opened"),
    ("src/model/x.c", "// fopen(x)\n/* open(x)\n open(y) */ int f(void) { return mha_model_open(s) + o->open(\"open(\"); }", None),
    ("src/io/x.c", "void f(void) { fopen(a, b); }", None),
    ("src/heads/measure/head_stats.c", "\nvoid f(void) { fopen(a, b); }", "files must be opened"),
    ("src/attn/x.c", "\nvoid *f(void) { return malloc(8); }", "memory must be"),
    ("src/attn/x.c", '\nchar *f(void) { return getenv("X"); }', "the environment must"),
    ("src/attn/x.c", "\nvoid f(void) { pthread_create(a, b, c, d); }", "threads must be"),
    ("src/kernel/x.c", "\nvoid f(void) { mha__parallel(a, b, c, d); }", "work must be"),
    ("src/kernel/x.c", "\nvoid f(void) { mha__alloc(a, b); }", "kernels must not"),
    ("src/io/x.c", '\nvoid f(void) { fprintf(stderr, "x"); }', "instead of printing"),
    ("src/io/x.c", '\nvoid f(void) { snprintf(a, 1, "printf("); }', None),
    ("src/io/x.c", '\nvoid f(void) { mha__fail(err, 1, "%s, %d", s->of.path, 1); }', "s->of.path: file names"),
    ("src/io/x.c", '\nvoid f(void) { mha__fail(err, 1, "%s", mha_file_path(t->file)); }', "mha_file_path(t->file): file names"),
    ("src/io/x.c", 'int f(void) { return mha__fail(err, 1, "%s %s", mha__quote(&(mha__quoted){0}, path, strlen(path)), path ? a : b); }', None),
]  # fmt: skip


def self_test():
    """Prints each sample with a wrong result and returns their number."""
    wrong = 0
    for path, text, want in SAMPLES:
        found = check_file(path, text)
        last = text.count("\n") + 1  # the violation must be reported in the last line of the sample
        good = not found if want is None else len(found) == 1 and found[0][0] == last and want in found[0][1]
        if not good:
            print(f"self-test: {path}: {text!r}: the message must contain {want!r} (got {found})")
            wrong += 1
    if "src/io/" not in stale_rules(pathlib.Path(__file__)):  # a root folder without the folders that the rules name
        print("self-test: a rule about a missing folder must be reported")
        wrong += 1
    counts = {folder: FILES_MAX + 1 for folder in CROWDED}
    for more, want in [({}, 0), ({"src/x": FILES_MAX}, 0), ({"src/x": FILES_MAX + 1}, 1), ({DATA[0] + "x": 1000}, 0)]:
        if len(list(crowded(counts | more))) != want:
            print(f"self-test: folders with {more} files must yield {want} messages")
            wrong += 1
    named = [
        (["src/a/x.c", "src/a/x.h", "include/mha/x.h"], 0),
        (["src/a/x.c", "cli/x.h"], 1),
        (["include/mha/x.h", "cli/x.h"], 1),
        (["src/a/x.c", "tests/x.c", "src/a/README.md", "cli/README.md"], 0),
    ]
    for paths, want in named:
        if len(list(shared_names(paths))) != want:
            print(f"self-test: base names of {paths} must yield {want} messages")
            wrong += 1
    tag = "typedef struct mha__x {\n    int a;\n} mha__x;\n"
    tagged = [
        ({"src/a/a.c": tag, "mpi/b.c": tag}, 1),
        ({"src/a/a.c": tag.replace("mha__", ""), "cli/b.c": tag.replace("mha__", "")}, 0),
        ({"src/a/a.h": tag, "src/a/b.h": "typedef struct mha__x mha__x; // struct mha__x { }"}, 0),
        ({"src/a/a.h": tag, "tests/b.h": tag}, 0),
    ]
    for texts, want in tagged:
        if len(list(shared_tags(texts))) != want:
            print(f"self-test: tags of {texts} must yield {want} messages")
            wrong += 1
    if len(list(crowded({}))) != len(CROWDED):
        print("self-test: an unnecessary exception in CROWDED must be reported")
        wrong += 1
    return wrong


def main():
    if sys.argv[1:] == ["--self-test"]:
        return 1 if self_test() else 0
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    return 1 if check_tree(pathlib.Path(__file__).resolve().parent.parent) else 0


if __name__ == "__main__":
    sys.exit(main())
