#!/bin/sh
# check_headers.sh - checks that each public header compiles alone, and when included twice, as C11 and C++17 without
# warnings, and that every struct without the field `size` may keep its layout: either `fixed` lists it, or the
# comment before it says that later versions may add fields at the end.
#
# $CC is the C compiler (default: cc), $CXX is the C++ compiler (default: any that is found). Without a C++ compiler,
# C++17 is skipped.
set -eu
cd "$(dirname -- "$0")/.."
status=0

# compile HEADER COMPILER LANGUAGE STANDARD: compiles a file that includes the header twice.
compile() {
    printf '#include "mha/%s"\n#include "mha/%s"\n' "$1" "$1" |
        "$2" -x "$3" "-std=$4" -Wall -Wextra -Wpedantic -Wconversion -Werror -Iinclude -fsyntax-only - || {
        echo "include/mha/$1 must compile alone as $4"
        status=1
    }
}

cxx=
for name in "${CXX:-}" c++ g++ clang++ clang++-16; do
    command -v "${name:-none}" >/dev/null && cxx=$name && break
done
[ -n "$cxx" ] || echo 'skipped: the public headers as C++17, because no C++ compiler is installed'

for path in include/mha/*.h; do
    header=${path##*/}
    compile "$header" "${CC:-cc}" c c11
    [ -z "$cxx" ] || compile "$header" "$cxx" c++ c++17
done

# Structs without `size` whose layout never changes.
fixed="
mha_allocator mha_attention_edge mha_attn_part mha_attn_partial mha_attn_visitor mha_cluster_part mha_comparison
mha_cview mha_edit_evaluation mha_error mha_head_layout mha_head_layout_advice mha_head_layout_parameters
mha_head_map mha_head_merge mha_head_probe mha_head_queries mha_head_steps mha_head_thresholds mha_host_choice
mha_host_layout mha_host_network mha_host_speed mha_image mha_importance_heads mha_layer_activations
mha_layer_choice mha_layer_shard mha_layer_source mha_layout_model mha_layout_trial mha_mask mha_matrix
mha_metadata mha_model_attention mha_model_distill mha_model_dropout mha_model_head mha_model_range
mha_named_tensor mha_norm mha_patch_part mha_path_edge mha_prompt mha_prune_point mha_rng mha_sampling mha_shard
mha_step_view mha_tokenizer_trained mha_train_batch mha_train_digest mha_train_dropout mha_train_file
mha_train_gates mha_train_report mha_train_sample mha_view mha_window
"
# Prints the names of the structs without `size`, except for those that may grow.
unsized=$(awk '/^\/\*/ { comment = "" }
               /^(\/\*| \*)/ { sub(/^ *\/?\*/, ""); comment = comment $0 }
               /^typedef struct [a-z0-9_]+ \{/ { name = $3; known = comment ~ /later versions may add fields at the end\./ }
               /^    size_t size;/ { known = 1 }
               /^\} / { if (name && !known) print name; name = comment = "" }' include/mha/*.h | sort)
listed=$(echo "$fixed" | tr ' ' '\n' | grep . | sort)
[ "$unsized" = "$listed" ] || {
    echo 'structs must begin with size, have a comment that later versions may add fields at the end, or be listed as fixed:'
    printf '%s\n' "$unsized" "$listed" | sort | uniq -u
    status=1
}
exit "$status"
