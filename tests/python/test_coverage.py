"""Every public C function must be called by the binding, or listed here with a reason."""
import re
import sys
from pathlib import Path

import mha
from mha._binding import abi

PACKAGE = Path(mha.__file__).parent

# {reason: the functions, without the prefix mha_, that the binding does not call for this reason}
EXCLUDED = {
    "exceptions have the message of the library, and NumPy has the types": """
        status_text dtype_name dtype_size
    """,
    "contexts live as long as the process": """
        ctx_free model_ctx
    """,
    "for work shared by several processes: mha/cluster.h and mha/model_ranks.h": """
        attn_subtree attn_merge_partials trainer_compare_ranks model_ranks_range
    """,
    "the binding calls mha_attention_backward, which plans and runs the backward pass": """
        attn_backward
    """,
    "describes a call to be planned; Cache.attention runs without a plan": """
        cache_describe
    """,
    "forward() allocates its workspace": """
        attn_layer_workspace block_workspace
    """,
    "part of C programs that run decoder layers themselves; mha.Model runs them": """
        attn_layer_source block_source latent_create latent_cache latent_backward
    """,
    "for libraries that read structs of their callers": """
        struct_read
    """,
    "layouts over hosts are predicted by the program: mha plan --hosts --json": """
        host_model_of_config host_model_of_layout host_network_key host_network_help host_network_find host_speed_measure
        host_job_key host_job_help host_layout_predict host_layouts
    """,
    "models, tokenizers and tensors are opened from folders and files": """
        file_open_memory tokenizer_open_memory
    """,
    "on_activations receives arrays, whose rows and columns are those of a head and token": """
        model_head_steps head_steps_score
    """,
    "mha_importance_values returns all scores": """
        importance_value
    """,
    "mha.HeadData tokenizes the texts for all measures": """
        heads_measure
    """,
}


def main():
    sources = "\n".join(p.read_text(encoding="utf-8") for p in PACKAGE.rglob("*.py") if p != Path(abi.__file__))
    called = set(re.findall(r"\bmha_\w+", sources))
    listed = {f"mha_{name}" for names in EXCLUDED.values() for name in names.split()}
    missing = [name for name in abi.FUNCTIONS if name not in called | listed]
    stale = [name for name in sorted(listed) if name in called or name not in abi.FUNCTIONS]
    bound = sum(name in called for name in abi.FUNCTIONS)
    for name in missing:
        print(f"{name}: must be called in python/mha, or be excluded here with a reason")
    for name in stale:
        print(f"{name}: must not be listed here: it is bound, or not a public function")
    print(f"{bound} of {len(abi.FUNCTIONS)} public functions are bound")
    return bool(missing or stale or bound < 348)


if __name__ == "__main__":
    sys.exit(main())
