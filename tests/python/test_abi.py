"""The structs of the binding are those of the headers: size and every offset, as the C compiler sees them."""
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mha import _array, _library, _operator

ROOT = Path(__file__).resolve().parents[2]
STRUCTS = {
    "mha_view": _library.View, "mha_cview": _library.View, "mha_error": _library.Error, "mha_window": _library.Window,
    "mha_allocator": _library.Allocator, "mha_ctx_options": _library.CtxOptions, "mha_attn_desc": _library.AttnDesc,
    "mha_attn_args": _library.AttnArgs, "mha_attn_stats": _library.AttnStats, "mha_attn_grads": _library.AttnGrads, "mha_model_attention": _library.ModelAttention, "mha_model_info": _library.ModelInfo, "mha_model_input": _library.ModelInput,
    "mha_model_output": _library.ModelOutput, "mha_model_head": _library.ModelHead,
    "mha_model_stats": _library.ModelStats, "mha_model_activations": _library.ModelActivations, "mha_encode_options": _library.EncodeOptions,
    "mha_encoding": _library.Encoding, "mha_embed_options": _library.EmbedOptions, "mha_prompt": _library.Prompt,
    "mha_sampling": _library.Sampling, "mha_named_tensor": _library.NamedTensor,
    "mha_model_distill": _library.Distill, "mha_model_loss_args": _library.LossArgs, "mha_model_save_options": _library.SaveOptions, "mha_generate_options": _library.GenerateOptions,
}
CONSTANTS = {f"MHA_{n}": getattr(_array, n) for n in ("F32", "BF16", "F16", "F64", "BOOL", "U8", "I64")}
CONSTANTS |= {f"MHA_ATTN_{n}": getattr(_operator, n) for n in (
    "KEEP", "BIAS", "Q_LENS", "KV_LENS", "CU_SEQLENS", "PREFIX_LENS", "BLOCK_KEEP", "BLOCK_TABLE", "SLOPES", "SINKS",
    "GATES", "HEAD_LIST", "DROPOUT_KEEP", "MAP_HEADS", "MAP_ROWS", "LSE", "PROBS", "STATS", "SCORES", "GRADS",
    "ROWS")}
CONSTANTS |= {"MHA_ALIGN_TOP_LEFT": 1, "MHA_ALIGN_BOTTOM_RIGHT": 2, "MHA_ALIGN_OFFSETS": _operator._ALIGN_OFFSETS}


def expectations():
    """Lines `expression value` that must be true of the headers."""
    for name, struct in STRUCTS.items():
        yield f"sizeof({name})", ctypes.sizeof(struct)
        for field, *_ in struct._fields_:
            yield f"offsetof({name}, {field})", getattr(struct, field).offset
            yield f"sizeof((({name} *)0)->{field})", getattr(struct, field).size
    yield from CONSTANTS.items()


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
        print(f"{expression}: the binding says {ours}, the header {theirs}")
    print(f"{len(lines) - len(wrong)} of {len(lines)} agree")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
