"""Every public C function must be called by the binding, or listed here with a reason."""
import re
import sys
from pathlib import Path

from mha import _abi

PACKAGE = Path(_abi.__file__).parent

# {reason: the functions, without the prefix mha_, that the binding does not call for this reason}
EXCLUDED = {
    "the binding does not need these functions": """
        status_text dtype_name dtype_size ctx_free ctx_threads isa_list attn_plan_weights model_ctx
    """,
    "the binding does not split attention over processes": """
        attn_subtree attn_merge_partials
    """,
    "the binding calls mha_attention_backward, which plans and runs the backward pass": """
        attn_backward
    """,
    "describes a call to be planned; Cache.attention runs without a plan": """
        cache_describe
    """,
    "measures the limits of the machine, as mha bench does": """
        limit_fma limit_read
    """,
    "forward() allocates its workspace": """
        attn_layer_workspace block_workspace
    """,
    "head statistics are not bound yet: mha heads": """
        heads_measure heads_of_maps
    """,
    "importance of heads is not bound yet: mha heads --by": """
        importance_score_needs_loss head_loss_key importance_value
    """,
    "editing models is not bound yet: mha prune, regroup, diff": """
        prune_search prune_curve_free prune_curve_points prune_curve_best regroup_method_help
    """,
    "head layouts are not bound yet: mha plan": """
        plan_variant_key plan_variant_help plan_resolve plan_layouts plan_variants plan_measure plan_advise
    """,
}


def main():
    sources = "\n".join(p.read_text(encoding="utf-8") for p in PACKAGE.glob("*.py") if p.name != "_abi.py")
    called = set(re.findall(r"\bmha_\w+", sources))
    listed = {f"mha_{name}" for names in EXCLUDED.values() for name in names.split()}
    missing = [name for name in _abi.FUNCTIONS if name not in called | listed]
    stale = [name for name in sorted(listed) if name in called or name not in _abi.FUNCTIONS]
    bound = sum(name in called for name in _abi.FUNCTIONS)
    for name in missing:
        print(f"{name}: must be called in python/mha, or be excluded here with a reason")
    for name in stale:
        print(f"{name}: must not be listed here: it is bound, or not a public function")
    print(f"{bound} of {len(_abi.FUNCTIONS)} public functions are bound")
    return bool(missing or stale or bound < 222)


if __name__ == "__main__":
    sys.exit(main())
