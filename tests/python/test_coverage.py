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
    "NumPy and PyTorch have random generators; PyTorch's returns the same values": """
        rng_manual_seed rng_next rng_rand rng_rand_f64 rng_uniform rng_randn rng_normal rng_randn_f64 rng_exponential
        rng_randint rng_randperm rng_multinomial rng_bernoulli rng_dropout_mask rng_dropout rng_kaiming_uniform
        rng_xavier_uniform rng_linear rng_embedding rng_multihead
    """,
    "the variants of layers are not bound yet": """
        variant_free variant_parameter_count variant_init variant_parameters variant_update variant_gradients
        variant_zero_gradients trace_create trace_free variant_forward trace_step trace_chosen trace_heads trace_flops
        variant_backward self_attention_create causal_attention_create stacked_heads_create weight_split_create
        qkv_attention_create standard_mha_create grouped_query_create llama_attention_create moe_heads_create
        head_pruning_create adaptive_heads_create
    """,
    "single layers are not bound yet; models run them": """
        activation_forward activation_backward linear_create linear_create_stack linear_free linear_forward
        linear_backward norm_forward norm_backward cross_entropy embedding_forward embedding_backward
        attn_layer_create attn_layer_free attn_layer_forward attn_layer_workspace block_create block_free
        block_forward block_workspace
    """,
    "the packages safetensors and NumPy read and write these files": """
        file_open file_free checkpoint_open file_path file_format file_count file_tensor file_find file_metadata_count
        file_metadata tensor_aligned tensor_read tensors_read tensors_writer_create tensors_writer_put
        tensors_writer_finish tensors_writer_free tensors_write npy_write file_write
    """,
    "tokenizers without a model are not bound yet": """
        tokenizer_open tokenizer_free text_stream_create text_stream_free text_stream_put text_stream_end
    """,
    "training a tokenizer is not bound yet: mha tokenizer train": """
        tokenizer_trainer_create tokenizer_trainer_free tokenizer_trainer_put tokenizer_trainer_end
        tokenizer_trainer_run tokenizer_trainer_trained tokenizer_trainer_save
    """,
    "scores a part of a sequence, for mha/cluster_model.h": """
        model_score_hidden
    """,
    "caches of models are not bound yet; generate() uses one internally": """
        model_cache_create model_cache_free model_cache_length model_cache_bytes model_cache_clear
        model_cache_truncate model_cache_fork sampling_apply
    """,
    "training is not bound yet: mha train": """
        train_log_create train_log_read train_log_free train_log_count train_log_record train_log_lines train_log_add
        train_log_write_to
        model_grads_zero model_grads_dropout model_grads_forward model_grads_backward model_create model_save_check
        train_rate trainer_create trainer_free trainer_model trainer_step_count trainer_weights trainer_refresh
        trainer_gates trainer_step trainer_loss trainer_save trainer_resume train_data_create train_data_free
        train_data_add_text train_data_add_file train_data_finish train_data_describe train_data_sequence
        train_sequence_order train_mask_tokens train_digest_add train_digest_add_number train_digest_text
        train_store_open train_store_close train_store_has_checkpoint train_store_step train_store_resume
        train_store_keep train_store_save
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
    return bool(missing or stale or bound < 110)


if __name__ == "__main__":
    sys.exit(main())
