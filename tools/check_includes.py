#!/usr/bin/env python3
"""check_includes.py - the rules of the house that a compiler does not know.

Who may include whom, which folders may name an intrinsic, ask for the CPU, open files, allocate, start threads or print.
Prints FILE:LINE: what is wrong, and exits 1 if anything is. `--self-test` checks that each rule finds its violation.
"""

import pathlib
import re
import sys

# ---- the rules ----

# Includes go left only.
CHAINS = [
    ["base", "math", "kernel", "attn", "layer", "model", "train", "heads"],
    ["base", "math", "io", "text", "model"],
]
# include/mha/X.h belongs to src/X, but for these
PUBLIC_OWNER = {"types": "base", "ctx": "base", "machine_peak": "attn", "cache": "attn", "stats": "attn", "attn_grads": "attn",
                "rng": "math", "text_train": "text", "train_data": "train", "train_store": "train", "train_log": "train", "rope": "layer", "variants": "layer",
                "generate": "model",
                "model_grads": "model", "model_save": "model", "model_create": "model", "head_layouts": "heads", "head_data": "heads",
                "importance": "heads", "diversity": "heads", "prune": "heads", "compare_models": "heads", "regroup": "heads", "model_edit": "heads",
                "prune_search": "heads", "cluster": "attn", "work": "base"}
UMBRELLA = "mha/mha.h"  # for those outside; inside, only the version needs it
UMBRELLA_USERS = {"src/base/status.c"}
# Outside src/, these may look into it.
INSIDERS = ("tests/unit/", "tests/kernel/", "tests/property/", "tests/golden/", "tests/fuzz/", "tests/support/", "bench/kernel.c")
# Rooms of a folder, each of which includes those to its left. "." is the folder's own files; where it is missing, they
# may include any room, and any room may include them.
ROOMS = {
    "src/kernel": ["simd", "rows", "matmul", "attention", ".", "isa"],
    "src/attn": ["plan", "mask", "stats", "forward", "backward", "engine", "cache"],
    "src/layer": ["linear", "selection", "attention", "variants", "block", "loss"],
    "src/io": ["files", ".", "json", "npy", "safetensors"],
    "src/text": ["pretokenize", "normalize", "vocabulary", "decode", "train"],
    "src/model": ["config", "weights", "forward", "backward", "generate"],
    "src/train": ["data", "gates", "store", "log"],
    "src/heads": ["data", "measure", "diversity", "edit", "importance", "plan"],
    "cli": [".", "page", "input", "heads", "draw", "report", "run", "edit", "train", "tour", "plan", "bench", "verify", "program"],
    "conformance": [".", "heads", "models", "walkthroughs"],
}  # fmt: skip
CONFORMANCE_SEES = ("", "input", "verify")  # of cli/: "" is its own files
# Includes that go right nevertheless: (file, what it includes). An entry that is no longer needed is an error.
GOES_RIGHT = {
    ("src/layer/selection/head_selection.h", "layer/attention/attention_layer.h"),
}
# A base name stands once: its .c and .h are in one folder of these, and it may belong to one public header too.
NAMED_ONCE = ("src", "cli", "conformance", "mpi")
MOST_FILES = 25  # in a folder, without its README.md; more need rooms
CROWDED = {"include/mha"}
DATA = ("tests/golden/data/", "tests/fuzz/corpus/")  # whose folders may hold any number of files
FOLDERS = ("include", "src", "cli", "conformance", "mpi", "tests", "bench", "examples")

STANDARD = set(
    "assert ctype errno fenv float inttypes limits locale math setjmp signal stdalign stdarg stdatomic stdbool stddef "
    "stdint stdio stdlib string time wchar fcntl pthread sched unistd sys/mman sys/stat sys/syscall sys/types".split()
)
INTRINSIC_HEADER = re.compile(r"\w*intrin\.h|arm_\w+\.h")
CPU_HEADER = re.compile(r"cpuid\.h|sys/auxv\.h|asm/hwcap\.h")


def calls(names):
    """A call of one of the names: not a member (x->open), not part of a longer name (mha_model_open)."""
    return re.compile(rf"(?<![\w.>])(?:{names})\s*\(")


# (where it is forbidden, the exceptions, the pattern, the message); places are beginnings of paths.
FORBIDDEN = [
    ("src/", ["src/kernel/"], re.compile(r"\b_mm\d*_\w+|\b__m(128|256|512)\w*|\bv\w+q?_[fsu](16|32|64)\b|\bfloat(32x4|64x2)_t"),
     "an intrinsic; only src/kernel names one"),
    ("src/", ["src/base/cpu.c"], re.compile(r"\b(__get_cpuid\w*|__cpuid\w*|__builtin_cpu_\w+|xgetbv|getauxval|arch_prctl)\b"),
     "asks what the CPU is; only src/base/cpu.c does"),
    ("src/", ["src/io/"], calls("fopen|freopen|fdopen|open|openat|creat|mkstemp|opendir|popen|tmpfile"),
     "opens a file; only src/io and cli do"),
    ("src/", ["src/base/ctx_create.c"], calls("malloc|calloc|realloc|free|strdup|posix_memalign|aligned_alloc|getline"),
     "memory past the context; use mha__alloc and mha__free"),
    ("src/", ["src/base/ctx_create.c"], calls("getenv|secure_getenv|setenv|putenv"),
     "reads the environment; only src/base/ctx_create.c does"),
    ("src/", ["src/base/"], calls(r"pthread_\w+|thrd_\w+|fork"), "handles threads; only src/base does"),
    ("src/", ["src/base/", "src/math/", "src/attn/", "src/layer/", "src/text/train/count_words.c"], calls("mha__parallel"),
     "splits work; only src/math, src/attn, src/layer and, to count words, src/text/train/count_words.c do"),
    ("src/kernel/", [], calls("mha__alloc|mha__calloc|mha__free|mha__log|mha__progress"),
     "a kernel allocates or talks; its caller does that"),
    ("src/", [], calls("printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|perror|exit|_exit|abort"),
     "prints or ends the program; the library returns a status"),
]  # fmt: skip

# ---- the check ----


def reach():
    """folder -> the folders that it may include, itself among them."""
    left = {}
    for chain in CHAINS:
        for i, folder in enumerate(chain):
            left.setdefault(folder, set()).update(chain[: i + 1])
    for _ in left:  # long enough for any path through the chains
        for folder in left:
            left[folder] = set().union(*(left[other] for other in left[folder]))
    return left


REACH = reach()


def without_comments(text):
    """The code alone: comments and the insides of strings blanked, lines kept."""
    token = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)

    def blank(match):
        found = match.group()
        if found[0] == '"':
            return '""'
        return re.sub(r"[^\n]", " ", found)

    return token.sub(blank, text)


def check_public(folder, header, path):
    """A public header, seen from a folder of src/ or from another public header."""
    if header == UMBRELLA:
        return None if path in UMBRELLA_USERS else f"{UMBRELLA} is for those outside; name the header that is needed"
    stem = pathlib.PurePath(header).stem
    owner = PUBLIC_OWNER.get(stem, stem)
    if owner not in REACH[folder]:
        return f"{folder} may not include {header}, which lies to its right"
    return None


def check_rooms(path, name):
    """#include "name" goes left among the rooms of its folder."""
    if (path, name) in GOES_RIGHT:
        return None
    if path.startswith("cli/") and name.startswith("conformance/"):
        return f'cli may not include "{name}", which lies to its right'
    if path.startswith("conformance/") and not name.startswith(("conformance/", "mha/")):
        seen = "/" not in name or name.split("/")[0] in CONFORMANCE_SEES
        return None if seen else f'conformance may not include "{name}"; it sees {", ".join(CONFORMANCE_SEES[1:])} of cli'
    folder = next((folder for folder in ROOMS if path.startswith(folder + "/")), None)
    within = folder.removeprefix("src/") + "/" if folder and folder != "cli" else ""
    if not folder or not name.startswith(within):
        return None
    rest = [str(path).removeprefix(folder + "/"), name.removeprefix(within)]
    rooms = [place.split("/")[0] if "/" in place else "." for place in rest]
    order = ROOMS[folder]
    if rooms[0] in order and rooms[1] in order and order.index(rooms[1]) > order.index(rooms[0]):
        return f'{folder}/{rooms[0]} may not include "{name}", which lies to its right'
    return None


def check_quoted(path, name):
    """#include "name" """
    parts = pathlib.PurePath(path).parts
    target = name.split("/")[0] if "/" in name else None
    if ".." in name.split("/"):
        return f'"{name}" climbs out of its folder; name it from the root'
    if parts[0] == "src":
        if target == "mha":
            return check_public(parts[1], name, path)
        if target in REACH and target not in REACH[parts[1]]:
            return f'{parts[1]} may not include "{name}", which lies to its right'
        return None
    if parts[0] in ("cli", "conformance") and target in ROOMS["cli"]:
        return None
    if target in REACH and not path.startswith(INSIDERS):
        return f'"{name}" is inside the library; only include/mha is visible here'
    if parts[0] == "include" and target == "mha" and path != "include/" + UMBRELLA:
        return check_public(PUBLIC_OWNER.get(pathlib.PurePath(path).stem, pathlib.PurePath(path).stem), name, path)
    return None


def check_angled(path, name):
    """#include <name>"""
    if INTRINSIC_HEADER.fullmatch(name):
        return None if path.startswith("src/kernel/") else f"<{name}> outside src/kernel"
    if CPU_HEADER.fullmatch(name):
        return None if path == "src/base/cpu.c" else f"<{name}> outside src/base/cpu.c"
    if name == "jansson.h" and re.match(r"src/(?!base|math|kernel|attn)", path):
        return "<jansson.h>: the library reads and writes JSON through io/json/json.h and io/json/json_write.h"
    if re.match(r"src/(base|math|kernel|attn)/|include/", path) and name.removesuffix(".h") not in STANDARD:
        return f"<{name}>: the operator and the public headers need libc, libm and threads alone"
    return None


def check_file(path, text):
    """[(line, message)] of one file; `path` is relative to the root, with slashes."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        include = re.match(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', line)
        if include:
            name = include[1]
            message = check_quoted(path, name) or check_rooms(path, name) if name else check_angled(path, include[2])
            if message:
                found.append((number, message))
    if path.startswith("src/"):
        for number, line in enumerate(without_comments(text).splitlines(), 1):
            for within, allowed, pattern, message in FORBIDDEN:
                hit = pattern.search(line) if path.startswith(within) and not path.startswith(tuple(allowed)) else None
                if hit:
                    found.append((number, f"{hit[0].rstrip(' (')}: {message}"))
    return found


def stale_rules(root):
    """The rules that name a file, a folder or a header that does not exist, so that they would permit what nobody meant."""
    places = [*FOLDERS, *INSIDERS, *UMBRELLA_USERS, "include/" + UMBRELLA]
    places += [place for within, allowed, _, _ in FORBIDDEN for place in [within, *allowed]]
    places += [f"include/mha/{header}.h" for header in PUBLIC_OWNER]
    places += [f"src/{folder}/" for folder in {*REACH, *PUBLIC_OWNER.values()}]
    places += [f"{folder}/{room}/" for folder, rooms in ROOMS.items() for room in rooms]
    places += [*CROWDED, *DATA]
    stale = [place for place in sorted(set(places)) if not (root / place).exists()]
    return stale + [f"{path} with {name}" for path, name in sorted(GOES_RIGHT) if not includes(root / path, name)]


def includes(path, name):
    """Does the file exist and include "name"?"""
    return path.exists() and f'#include "{name}"' in path.read_text(encoding="utf-8")


def unordered_rooms(root):
    """Rooms that the order of their folder does not name."""
    for folder, rooms in ROOMS.items():
        for room in sorted((root / folder).iterdir()):
            if room.is_dir() and room.name not in rooms and any(room.rglob("*.[ch]")):
                yield f"{folder}/{room.name}"


def shared_names(paths):
    """Messages about base names of .c and .h files that stand in two folders."""
    folders = {}
    for path in map(pathlib.PurePosixPath, sorted(paths)):
        if path.suffix in (".c", ".h") and path.parts[0] in NAMED_ONCE:
            folders.setdefault(path.stem, []).append(path)
    for stem, found in folders.items():
        if len({path.parent for path in found}) > 1:
            yield f"{stem} is the base name of {' and of '.join(map(str, found))}"
    for header in (pathlib.PurePosixPath(path) for path in paths if path.startswith("include/")):
        for path in folders.get(header.stem, []):
            if path.parts[0] not in ("src", "mpi"):
                yield f"{path}: its base name is that of {header}"


def crowded(counts):
    """Messages about folders with too many files, and about exceptions that are not needed; counts: folder -> files."""
    for folder, count in sorted(counts.items()):
        if count > MOST_FILES and folder not in CROWDED and not f"{folder}/".startswith(DATA):
            yield f"{folder}: {count} files; more than {MOST_FILES} need rooms"
    for folder in sorted(CROWDED):
        if counts.get(folder, 0) <= MOST_FILES:
            yield f"tools/check_includes.py: {folder} needs no exception: it has at most {MOST_FILES} files"


def count_files(root):
    """folder -> number of files in it, of the folders that git keeps."""
    counts = {}
    for top in sorted(root.iterdir()):
        if top.is_dir() and top.name != "build" and not top.name.startswith("."):
            for path in top.rglob("*"):
                if path.is_file() and path.name != "README.md" and "__pycache__" not in path.parts:
                    folder = path.parent.relative_to(root).as_posix()
                    counts[folder] = counts.get(folder, 0) + 1
    return counts


def check_tree(root):
    """Number of violations below root, each printed; nothing to check is one too."""
    count = files = 0
    for place in stale_rules(root):
        print(f"tools/check_includes.py: a rule names {place}, which does not exist")
        count += 1
    for room in unordered_rooms(root):
        print(f"tools/check_includes.py: ROOMS lacks {room}")
        count += 1
    paths = [path.relative_to(root).as_posix() for top in FOLDERS for path in (root / top).rglob("*")]
    for message in [*crowded(count_files(root)), *shared_names(paths)]:
        print(message)
        count += 1
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".c", ".h", ".inc"):
                continue
            name = path.relative_to(root).as_posix()
            files += 1
            for line, message in check_file(name, path.read_text(encoding="utf-8")):
                print(f"{name}:{line}: {message}")
                count += 1
    if files == 0:
        print(f"{root}: no source files here")
    return count or files == 0


# ---- the check of the check: (path, text, what the message must hold; None = clean) ----

SAMPLES = [
    ("src/attn/fwd.c", '#include "kernel/kernel.h"\n#include "mha/attn.h"\n#include <math.h>', None),
    ("src/kernel/x.c", '#include "attn/plan/plan.h"', "lies to its right"),
    ("src/io/x.c", '#include "kernel/kernel.h"', "lies to its right"),
    ("src/model/x.c", '#include "text/text.h"\n#include "layer/layer.h"', None),
    ("src/layer/x.c", '#include "io/json/json.h"', "lies to its right"),
    ("src/base/x.c", '#include "mha/model.h"', "lies to its right"),
    ("src/base/x.c", '#include "mha/ctx.h"', None),
    ("src/attn/x.c", '#include "mha/mha.h"', "for those outside"),
    ("src/attn/x.c", '#include "../base/ctx.h"', "climbs"),
    ("src/attn/x.c", "#include <jansson.h>", "libc, libm and threads"),
    ("src/io/x.c", "#include <jansson.h>", "io/json/json.h"),
    ("include/mha/attn.h", '#include "mha/model.h"', "lies to its right"),
    ("include/mha/attn.h", "#include <cairo.h>", "libc, libm and threads"),
    ("cli/x.c", '#include "base/ctx.h"', "only include/mha is visible"),
    ("cli/x.c", '#include "mha/mha.h"\n#include "output.h"\nint f(void) { return printf("x"); }', None),
    ("examples/x.c", '#include "kernel/kernel.h"', "only include/mha is visible"),
    ("bench/kernel.c", '#include "kernel/kernel.h"', None),
    ("bench/attn.c", '#include "kernel/kernel.h"', "only include/mha is visible"),
    ("tests/unit/test_x.c", '#include "base/ctx.h"', None),
    ("tests/cli/x.c", '#include "base/ctx.h"', "only include/mha is visible"),
    ("src/kernel/x.c", "#include <immintrin.h>\n__m256 f(void) { return _mm256_setzero_ps(); }", None),
    ("src/attn/x.c", "#include <arm_neon.h>", "outside src/kernel"),
    ("src/attn/x.c", "\n__m512 x;", "only src/kernel names one"),
    ("src/layer/x.c", "\nvoid f(void) { vaddq_f32(a, b); }", "only src/kernel names one"),
    ("src/base/cpu.c", "#include <cpuid.h>\nint f(void) { return __get_cpuid(1, a, b, c, d); }", None),
    ("src/kernel/kernel_select.c", "#include <cpuid.h>", "outside src/base/cpu.c"),
    ("src/kernel/kernel_select.c", '\nint f(void) { return __builtin_cpu_supports("avx2"); }', "asks what the CPU is"),
    ("src/model/x.c", "\nvoid f(void) { fopen(a, b); }", "opens a file"),
    ("src/model/x.c", "\nvoid f(void) { open (a, b); }", "opens a file"),
    ("src/model/x.c", "// fopen(x)\n/* open(x)\n open(y) */ int f(void) { return mha_model_open(s) + o->open(\"open(\"); }", None),
    ("src/io/x.c", "void f(void) { fopen(a, b); }", None),
    ("src/heads/measure/head_stats.c", "\nvoid f(void) { fopen(a, b); }", "opens a file"),
    ("src/attn/x.c", "\nvoid *f(void) { return malloc(8); }", "memory past the context"),
    ("src/attn/x.c", '\nchar *f(void) { return getenv("X"); }', "reads the environment"),
    ("src/attn/x.c", "\nvoid f(void) { pthread_create(a, b, c, d); }", "handles threads"),
    ("src/kernel/x.c", "\nvoid f(void) { mha__parallel(a, b, c, d); }", "splits work"),
    ("src/kernel/x.c", "\nvoid f(void) { mha__alloc(a, b); }", "a kernel allocates"),
    ("src/io/x.c", '\nvoid f(void) { fprintf(stderr, "x"); }', "prints or ends"),
    ("src/io/x.c", '\nvoid f(void) { snprintf(a, 1, "printf("); }', None),
]  # fmt: skip


def self_test():
    """Number of samples that were judged wrongly, each printed."""
    wrong = 0
    for path, text, want in SAMPLES:
        found = check_file(path, text)
        last = text.count("\n") + 1  # the violation is in the sample's last line
        good = not found if want is None else len(found) == 1 and found[0][0] == last and want in found[0][1]
        if not good:
            print(f"self-test: {path}: {text!r}: want {want!r}, got {found}")
            wrong += 1
    if "src/io/" not in stale_rules(pathlib.Path(__file__)):  # which has no folders at all
        print("self-test: a rule about a folder that does not exist is not reported")
        wrong += 1
    counts = {folder: MOST_FILES + 1 for folder in CROWDED}
    for more, want in [({}, 0), ({"src/x": MOST_FILES}, 0), ({"src/x": MOST_FILES + 1}, 1), ({DATA[0] + "x": 1000}, 0)]:
        if len(list(crowded(counts | more))) != want:
            print(f"self-test: folders of {more} files: want {want} messages")
            wrong += 1
    named = [
        (["src/a/x.c", "src/a/x.h", "include/mha/x.h"], 0),
        (["src/a/x.c", "cli/x.h"], 1),
        (["include/mha/x.h", "cli/x.h"], 1),
        (["src/a/x.c", "tests/x.c", "src/a/README.md", "cli/README.md"], 0),
    ]
    for paths, want in named:
        if len(list(shared_names(paths))) != want:
            print(f"self-test: base names of {paths}: want {want} messages")
            wrong += 1
    if len(list(crowded({}))) != len(CROWDED):
        print("self-test: an exception for a folder that is not crowded is not reported")
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
