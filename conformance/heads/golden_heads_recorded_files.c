/* golden_heads_recorded_files.c - lists the recorded files of head analysis and the parts that compare them. */
#include "conformance/heads/golden_heads.h"

/* Files in the order of comparison, the fastest first. */
const heads_known heads_files[] = {
    {"tinylm-model.safetensors", "tinylm", heads_weights, "is"},
    {"synthetic-patterns.safetensors", "synthetic", heads_synthetic, "maps pattern_scores labels"},
    {"minilm-attention.safetensors", "statistics", heads_statistics,
     "entropy entropy_norm entropy_content confidence confidence_content confidence_nospecial distance "
     "distance_content offset prev_argmax next_argmax self_argmax first_argmax pattern_scores labels "
     "probe_ids attention_* rollout_*"},
    {"layer-backward.safetensors", "layer", heads_layers,
     "x_layer* dout_layer* ctx_layer* dctx_layer* gate_grad_layer* attention_layer*"},
    {"tinylm-golden.safetensors", "tinylm", heads_language,
     "logits loss gate_grad gate gate_batch gradmag_qkv gradmag taylor_elem attention "
     "loss_without_layer* loo_loss loo_pair_loss pattern_scores entropy distance confidence input_ids "
     "labels"},
    {"minilm-diversity.safetensors", "diversity", heads_diversity,
     "cosine cosine_centred js js_clark_sum map_xy map_eigenvalues cluster_merge_height cluster_merge_ids output_cka "
     "output_subspace"},
    {"minilm-pruning.safetensors", "pruning", heads_pruning, "keep_* embedding_* cos_*"},
    {"minilm-gqa.safetensors", "gqa", heads_gqa,
     "embedding_kv* cos_kv* embedding_lowrank_* cos_lowrank_* layer0_head0_k_weight layer0_head0_v_weight "
     "layer0_k_bias layer0_v_bias"},
    {"minilm-importance.safetensors", "importance", heads_importance,
     "embedding loss gradmag_qkv gradmag gradmag_3batches loss_scale20 gradmag_scale20 gate_scale20 "
     "gate_grad gate gate_batch gate_layer_l2 taylor_token taylor_elem jacobian jacobian_probe4 "
     "mean_ctx loo loo_loss loo_mean loo_mean_loss ov_norm qk_norm input_ids attention_mask"},
    {NULL, NULL, NULL, NULL}};
