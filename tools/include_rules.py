"""include_rules.py - the rules that check_includes.py checks, as tables."""

import re

# A folder may include only its own headers and those of folders to its left.
CHAINS = [
    ["base", "math", "kernel", "attn", "layer", "model", "train", "heads", "circuits"],
    ["base", "math", "io", "text", "model"],
]


def reach():
    """Returns {folder: folders whose headers it may include, with the folder itself}."""
    left = {}
    for chain in CHAINS:
        for i, folder in enumerate(chain):
            left.setdefault(folder, set()).update(chain[: i + 1])
    for _ in left:  # as many rounds as folders are sufficient for any path through the chains
        for folder in left:
            left[folder] = set().union(*(left[other] for other in left[folder]))
    return left


REACH = reach()

# Owners of public headers: include/mha/X.h belongs to src/X, except for these headers.
PUBLIC_OWNER = {"types": "base", "ctx": "base", "machine_peak": "attn", "cache": "attn", "stats": "attn", "score_functions": "attn", "attn_grads": "attn",
                "rng": "math", "mean_interval": "heads", "text_train": "text", "train_data": "train", "train_store": "train", "train_log": "train", "rope": "layer", "latent_attention": "layer", "variants": "layer",
                "generate": "model", "seq2seq": "model", "vision": "model", "token_times": "model", "audio": "io", "image": "io",
                "model_grads": "model", "model_save": "model", "model_create": "model", "head_layouts": "heads", "layout_training": "heads", "host_layouts": "heads", "head_data": "heads", "held_out": "heads",
                "importance": "heads", "diversity": "heads", "prune": "heads", "compare_models": "heads", "regroup": "heads", "model_edit": "heads",
                "prune_search": "heads", "cluster": "attn", "cluster_model": "model", "weight_circuits": "circuits", "logit_lens": "circuits", "logit_attribution": "circuits", "circuits": "circuits", "work": "base", "train_ranks": "base", "model_ranks": "layer"}
UMBRELLA = "mha/mha.h"  # for code outside the library; in the library, only the file with the version includes this header
UMBRELLA_USERS = {"src/base/status.c"}
# Code outside src/ that may include internal headers.
INSIDERS = ("tests/unit/", "tests/kernel/", "tests/property/", "tests/golden/", "tests/fuzz/", "tests/support/", "tests/tiles/", "bench/kernel.c")
# Subfolders, each of which may include only subfolders to its left. "." means the files of the folder itself.
SUBFOLDERS = {
    "src/kernel": ["simd", "rows", "matmul", "attention", ".", "isa"],
    "src/attn": ["plan", "mask", "stats", "forward", "backward", "engine", "cache"],
    "src/layer": [".", "linear", "ranks", "selection", "attention", "variants", "block", "loss"],
    "src/circuits": [".", "logits", "weights"],
    "src/io": ["files", ".", "audio", "json", "npy", "safetensors", "gguf", "image"],
    "src/text": [".", "pretokenize", "normalize", "vocabulary", "decode", "train", "gguf"],
    "src/model": ["gguf", ".", "config", "weights", "vision", "audio", "forward", "backward", "generate"],
    "src/train": [".", "data", "gates", "trainer", "store", "log"],
    "src/heads": ["weights", "data", "measure", "diversity", "edit", "importance", "plan"],
    "cli": [".", "page", "input", "heads", "draw", "live", "report", "lens", "circuits", "logits", "run", "edit", "train", "tour", "plan", "bench", "verify", "program"],
    "conformance": [".", "circuits", "heads", "models", "walkthroughs"],
    "mpi": ["library", "program"],
    "mpi/library": [".", "model"],
}  # fmt: skip
CONFORMANCE_SEES = ("", "input", "verify")  # subfolders of cli/ that conformance may include; "" stands for the files of cli/ itself
# Exceptions: (file, header to its right). An unnecessary entry is an error.
GOES_RIGHT = {
    ("src/layer/selection/head_selection.h", "layer/attention/attention_layer.h"),
    # structs with members whose types are in subfolders
    ("src/text/tokenizer.h", "text/decode/decode.h"),
    ("src/text/tokenizer.h", "text/normalize/text_edit.h"),
    ("src/text/tokenizer.h", "text/vocabulary/bpe.h"),
    ("src/text/tokenizer.h", "text/vocabulary/unigram.h"),
    ("src/text/tokenizer.h", "text/vocabulary/vocab.h"),
    ("src/model/model_struct.h", "model/weights/weights.h"),
    ("src/model/model_struct.h", "model/vision/preprocessor.h"),
}
# Base names must be unique in these folders: NAME.c and NAME.h are in one folder; a public header may have the same
# name.
NAMED_ONCE = ("src", "cli", "conformance", "mpi")
# Tags that begin with mha_ must be unique in these folders.
TAGGED_ONCE = ("include", *NAMED_ONCE)
FILES_MAX = 25  # maximum number of files per folder, without README.md; more files require subfolders
# include/mha is flat because users see its names; tests/python has one test per module.
CROWDED = {"include/mha", "tests/python"}
DATA = ("tests/golden/data/", "tests/fuzz/corpus/")  # these folders and their subfolders may contain any number of files
FOLDERS = ("include", "src", "cli", "conformance", "mpi", "tests", "bench", "examples")

STANDARD = set(
    "assert ctype errno fenv float inttypes limits locale math setjmp signal stdalign stdarg stdatomic stdbool stddef "
    "stdint stdio stdlib string time wchar fcntl pthread sched unistd sys/mman sys/stat sys/syscall sys/types".split()
)
INTRINSIC_HEADER = re.compile(r"\w*intrin\.h|arm_\w+\.h|wasm_simd128\.h")
CPU_HEADER = re.compile(r"cpuid\.h|sys/auxv\.h|asm/hwcap\.h")


def calls(names):
    """Returns a pattern for calls of these names, but not of members (x->open) or longer names (mha_model_open)."""
    return re.compile(rf"(?<![\w.>])(?:{names})\s*\(")


# Forbidden code: (path prefix, excepted path prefixes, pattern, message).
FORBIDDEN = [
    ("src/", ["src/kernel/"], re.compile(r"\b_mm\d*_\w+|\b__m(128|256|512)\w*|\bv\w+q?_[fsu](16|32|64)\b|\bfloat(32x4|64x2)_t"),
     "intrinsics are allowed only in src/kernel"),
    ("src/", ["src/base/cpu.c"], re.compile(r"\b(__get_cpuid\w*|__cpuid\w*|__builtin_cpu_\w+|xgetbv|getauxval|arch_prctl)\b"),
     "CPU features must be detected in src/base/cpu.c"),
    ("src/", ["src/io/"], calls("fopen|freopen|fdopen|open|openat|creat|mkstemp|opendir|popen|tmpfile"),
     "files must be opened in src/io or cli"),
    ("src/", ["src/base/ctx_create.c"], calls("malloc|calloc|realloc|free|strdup|posix_memalign|aligned_alloc|getline"),
     "memory must be allocated by mha__alloc and freed by mha__free"),
    ("src/", ["src/base/ctx_create.c"], calls("getenv|secure_getenv|setenv|putenv"),
     "the environment must be read in src/base/ctx_create.c"),
    ("src/", ["src/base/"], calls(r"pthread_\w+|thrd_\w+|fork"), "threads must be managed in src/base"),
    ("src/", ["src/base/", "src/math/", "src/attn/", "src/layer/", "src/text/train/count_words.c", "src/circuits/weights/weight_measure.c"], calls("mha__parallel"),
     "work must be divided in src/math, src/attn, src/layer, src/text/train/count_words.c or src/circuits/weights/weight_measure.c"),
    ("src/kernel/", [], calls("mha__alloc|mha__calloc|mha__free|mha__log|mha__progress"),
     "kernels must not allocate, log or report progress"),
    ("src/", [], calls("printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|perror|exit|_exit|abort"),
     "the library must return a status instead of printing or exiting"),
]  # fmt: skip
