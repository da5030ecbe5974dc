/* golden_keys.c - lists the keys and names that index.json of a golden folder may contain. An unknown key or name might
 * require a check that is not implemented, so it ends the run. Keys that are only remarks are listed, but never
 * read. */
#include "conformance/golden_folder.h"
#include "output.h"
#include <stdlib.h>
#include <string.h>

enum { FORMAT = 1 }; /* required value of the key "format", if present */

/* The words allowed at a path of the index, as keys of an object, as a string, or as strings of an array. In a path, []
 * means all elements of an array, and {} all members of an object. */
static const struct rule {
    const char *kind, *place, *words;
} rules[] = {
    {"attention", "", "format title torch case_count torch_behaviour cases"},
    {"attention", "cases[]",
     "name group note layout batch q_heads kv_heads q_len kv_len head_dim value_dim input_dtype seed scale "
     "scale_is_default softcap causal align q_offset window key_lengths prefix_lengths bool_mask bias alibi sinks "
     "block "
     "seq_q seq_k special bool_mask_shape bias_shape inputs outputs fully_masked_rows nonfinite_inputs exact_scores "
     "file float32_torch atol atol_from_lse atol_rounded_out sdpa"},
    {"attention", "cases[].atol_rounded_out", "dq dk dbias dslopes dsinks"},
    {"attention", "cases[].layout", "bhld packed"},
    {"attention", "cases[].inputs", "q k v dout dlse bool_mask bias slopes sinks block_mask cu_seqlens_q cu_seqlens_k"},
    {"attention", "cases[].outputs", "out lse attn dq dk dv dbias dslopes dsinks"},
    {"models", "", "format title torch transformers models"},
    {"models", "models[]",
     "name family class folder file seed parameters files tokenizer numpy_vs_torch_float64 prompt train generation "
     "same_golden_as note float32_vs_float64 atol generation_long seq2seq pixels"},
    {"models", "models[].tokenizer", "strings pairs"},
    {"models", "models[].tokenizer.strings[]",
     "text normalized pretokens ids ids_plain tokens offsets_plain decoded decoded_skip_special"},
    {"models", "models[].tokenizer.pairs[]", "a b ids type_ids"},
    {"models", "models[].train",
     "loss loss_float32_err reduction worst_relative_gradient_err_float32 gradients complete_gradients"},
    {"models", "models[].generation",
     "prompt_ids new_ids text eos_token_ids length_with_eos_stop cache_equals_no_cache min_margin distinct_tokens "
     "source decoder_start_token_id"},
    {"models", "models[].generation_long",
     "prompt_ids new_ids text eos_token_ids length_with_eos_stop cache_equals_no_cache min_margin distinct_tokens"},
    {"minilm", "",
     "format title package package_version folder_in_wheel sha256 licence tokenizer_json_truncation "
     "tokenizer_json_padding note cosine_names cosine cases"},
    {"minilm", "cases[]",
     "name file text tokens ids token_strings attentions float32_vs_float64 max_abs_hidden rows "
     "max_difference_to_single"},
    {"ops", "", "format torch rope norms activations cross_entropy logits_processing torch_mha"},
    {"ops", "rope", "layout cases"},
    {"ops", "rope.cases[]", "name head_dim max_position_embeddings length rope attention_factor"},
    {"ops", "rope.cases[].rope",
     "rope_theta rope_type factor low_freq_factor high_freq_factor original_max_position_embeddings beta_fast "
     "beta_slow "
     "mscale mscale_all_dim truncate attention_factor short_factor long_factor partial_rotary_factor"},
    {"ops", "norms", "cases note"},
    {"ops", "norms.cases[]", "name size eps"},
    {"ops", "activations", "functions note"},
    {"ops", "cross_entropy", "cases note"},
    {"ops", "cross_entropy.cases[]", "name loss"},
    {"ops", "logits_processing", "names chain note"},
    {"ops", "torch_mha", "cases note"},
    {"ops", "torch_mha.cases[]", "name module masks params"},
    {"ops", "torch_mha.cases[].module", "batch_first embed_dim num_heads bias kdim vdim add_bias_kv add_zero_attn"},
    {"seeds", "", "torch generator rounding_noise draws cases tables"},
    {"seeds", "cases[]",
     "name file seed_file config draws tolerance rounding_noise zero_gradients notes integers tensors printed"},
    {"seeds", "cases[].tolerance", "atol rtol"},
    {"seeds", "cases[].draws[]", "op seed tensor shape prefix in out bias p keep_tokens"},
    {"seeds", "tables[]", "name seed_file function rows notes columns d_model"},
    {"heads", "",
     "files spearman_with_loo pattern_names label_names thresholds closest_score_to_a_threshold sentences tokens "
     "prune_ratio prune_results seed model tinylm_config minilm_labels tinylm_labels note"},
    {"heads", "files",
     "minilm-importance.safetensors minilm-diversity.safetensors minilm-attention.safetensors "
     "minilm-pruning.safetensors minilm-gqa.safetensors layer-backward.safetensors tinylm-model.safetensors "
     "tinylm-golden.safetensors synthetic-patterns.safetensors"},
    {"heads", "sentences", "note a b"},
    {"heads", "thresholds", "single local broad vertical probe"},
    {"circuits", "", "format metrics ig_steps lens_gap cases weights files note"},
    {"circuits", "metrics", "logit_diff logprob kl"},
    {"circuits", "cases{}",
     "model text text_corrupted parts file clean_metrics corrupted_metrics estimates noise position"},
    {"circuits", "cases{}.parts", "patch attribute dla lens path knockout"},
    {"circuits", "cases{}.noise", "positions times_std seed"},
    {"circuits", "weights{}", "file layers heads kv_heads head_dim hidden random_composition"},
    {"circuits", "files{}{}", "shape dtype float32_max_abs_error abs_tolerance"},
};

/* The current position in the index. */
typedef struct place {
    const char *path;
    const struct rule *rule;
    const char *name; /* name of the innermost named entry, or NULL */
    mha_error *error;
} place;

static bool is_among(const char *words, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = words; length > 0 && (at = strstr(at, word)); at += length)
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) return true;
    return false;
}

/* Fails with a message such as: FOLDER/index.json: cases[] "len1": unknown key "x" = 3 */
static void refuse(const place *p, const char *what, const char *key, const json_t *value)
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    p->error->status = MHA_ERR_FORMAT;
    snprintf(p->error->message, sizeof p->error->message, "%s: %s%s%s%s%sunknown %s \"%.100s\"%s%.200s",
             cli_shown(p->path), p->rule->place, p->rule->place[0] ? " " : "", p->name ? "\"" : "",
             p->name ? cli_shown_start(p->name, 100) : "", p->name ? "\": " : "", what, cli_shown(key),
             text ? " = " : "", text ? cli_shown(text) : "");
    free(text);
}

static void check_words(const place *p, const json_t *here)
{
    size_t n;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)here, key, value) if (p->error->status == MHA_OK && !is_among(p->rule->words, key))
        refuse(p, "key", key, value);
    json_array_foreach(here, n, value) if (p->error->status == MHA_OK && json_is_string(value)) check_words(p, value);
    if (json_is_string(here) && !is_among(p->rule->words, json_string_value(here)))
        refuse(p, "value", json_string_value(here), NULL);
}

/* Follows the remaining path `rest` from `here`, and checks the words at its end. */
static void walk(place p, const json_t *here, const char *rest)
{
    size_t n;
    json_t *value;
    char key[40];
    const char *member, *name = json_string_value(json_object_get(here, "name"));
    const size_t length = strcspn(rest, ".[{");
    if (p.error->status != MHA_OK || !here) return;
    if (name) p.name = name;
    if (!*rest) {
        check_words(&p, here);
    } else if (length == 0) { /* [] means all elements of an array, {} all members of an object */
        json_array_foreach(here, n, value) walk(p, value, rest[2] == '.' ? rest + 3 : rest + 2);
        if (rest[0] == '{') json_object_foreach((json_t *)here, member, value)
            {
                p.name = member;
                walk(p, value, rest[2] == '.' ? rest + 3 : rest + 2);
            }
    } else {
        snprintf(key, sizeof key, "%.*s", (int)length, rest);
        walk(p, json_object_get(here, key), rest[length] == '.' ? rest + length + 1 : rest + length);
    }
}

mha_status verify_keys(const char *folder, const char *kind, const json_t *index, mha_error *error)
{
    char path[4200];
    const json_t *format = json_object_get(index, "format");
    snprintf(path, sizeof path, "%s/index.json", folder);
    if (format && json_integer_value(format) != FORMAT) {
        char *text = json_dumps(format, JSON_ENCODE_ANY | JSON_COMPACT);
        error->status = MHA_ERR_FORMAT;
        snprintf(error->message, sizeof error->message, "%s: \"format\" must be %d (got %.100s)", cli_shown(path),
                 FORMAT, cli_shown(text ? text : "?"));
        free(text);
    }
    for (size_t n = 0; n < sizeof rules / sizeof *rules; n++)
        if (strcmp(rules[n].kind, kind) == 0)
            walk((place){.path = path, .rule = &rules[n], .error = error}, index, rules[n].place);
    return error->status;
}
