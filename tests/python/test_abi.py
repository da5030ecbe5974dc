"""The binding's copy of the headers must be correct: every size, offset and constant, according to the C compiler."""
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mha._binding import abi

ROOT = Path(__file__).resolve().parents[2]


def expectations():
    """Yields lines `expression value` that must be true for the headers."""
    for name, struct in abi.STRUCTS.items():
        yield f"sizeof({name})", ctypes.sizeof(struct)
        for field, *_ in struct._fields_:
            spelled = field.removesuffix("_")  # the field `in` is named in_, because "in" is a keyword of Python
            yield f"offsetof({name}, {spelled})", getattr(struct, field).offset
            yield f"sizeof((({name} *)0)->{spelled})", getattr(struct, field).size
    yield from ((f"MHA_{name}", value) for name, value in vars(abi).items() if isinstance(value, int))


def main():
    compiler = os.environ.get("CC") or shutil.which("cc")
    if not compiler:
        print("skipped: no C compiler")
        return 77
    lines = list(expectations())
    prints = "".join(f'    printf("%lld\\n", (long long)({expression}));\n' for expression, _ in lines)
    source = f"#include <mha/mha.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void)\n{{\n{prints}}}\n"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "abi.c").write_text(source)
        subprocess.run([compiler, "-std=c11", f"-I{ROOT}/include", f"{folder}/abi.c", "-o", f"{folder}/abi"], check=True)
        said = subprocess.run([f"{folder}/abi"], check=True, capture_output=True, text=True).stdout.split()
    wrong = [(e, ours, int(theirs)) for (e, ours), theirs in zip(lines, said, strict=True) if ours != int(theirs)]
    for expression, ours, theirs in wrong:
        print(f"{expression}: the binding must have {theirs}, as in the header (got {ours})")
    print(f"{len(lines) - len(wrong)} of {len(lines)} agree")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
