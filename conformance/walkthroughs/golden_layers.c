/* golden_layers.c - walk-throughs of whole layers: creates the layer of a case, and reads its inputs and parameters. */
#include "conformance/walkthroughs/golden_seeds.h"
#include "output.h"
#include <stdlib.h>
#include <string.h>

/* ---- creation of the layer ---- */

static mha_scale_rule scale_rule(const seed_case *c)
{
    return strcmp(verify_text(&c->config, "scale_rule"), "sqrt(d_out)") == 0 ? MHA_SCALE_D_OUT : MHA_SCALE_HEAD_DIM;
}

static bool is_true(const seed_case *c, const char *key)
{
    return json_is_true(json_object_get(c->config.object, key));
}

static mha_status make_self(seed_case *c, mha_variant **layer, mha_error *error)
{
    const mha_self_attention_options o = {.size = sizeof o,
                                          .d_in = seed_integer(c, "d_in"),
                                          .d_out = seed_integer(c, "d_out"),
                                          .plain_matrices = seed_has(c, "param.w_q")};
    return mha_self_attention_create(c->ctx, &o, layer, error);
}

static mha_status make_stacked(seed_case *c, mha_variant **layer, mha_error *error)
{
    const bool plain = seed_has(c, "param.heads.0.w_q");
    const int64_t heads = seed_integer(c, "heads");
    const mha_stacked_heads_options o = {.size = sizeof o,
                                         .d_in = seed_integer(c, "d_in"),
                                         .d_out = verify_has(&c->config, "d_out") ? seed_integer(c, "d_out")
                                                                                  : seed_integer(c, "head_dim") * heads,
                                         .num_heads = heads,
                                         .context_length = seed_integer(c, "tokens"),
                                         .dropout = verify_real(&c->config, "dropout"),
                                         .qkv_bias = is_true(c, "qkv_bias"),
                                         .plain_matrices = plain,
                                         .scale_rule = plain ? MHA_SCALE_HEAD_DIM : scale_rule(c)};
    return mha_stacked_heads_create(c->ctx, &o, layer, error);
}

static mha_status make_weight_split(seed_case *c, mha_variant **layer, mha_error *error)
{
    const mha_weight_split_options o = {.size = sizeof o,
                                        .d_in = seed_integer(c, "d_in"),
                                        .d_out = seed_integer(c, "d_out"),
                                        .num_heads = seed_integer(c, "heads"),
                                        .context_length = seed_integer(c, "tokens"),
                                        .dropout = verify_real(&c->config, "dropout"),
                                        .qkv_bias = is_true(c, "qkv_bias"),
                                        .scale_rule = scale_rule(c)};
    return mha_weight_split_create(c->ctx, &o, layer, error);
}

static mha_status make_qkv(seed_case *c, mha_variant **layer, mha_error *error)
{
    const mha_qkv_attention_options o = {.size = sizeof o,
                                         .input_dim = seed_integer(c, "input_dim"),
                                         .num_heads = seed_integer(c, "heads"),
                                         .output_dim = seed_integer(c, "output_dim")};
    return mha_qkv_attention_create(c->ctx, &o, layer, error);
}

static mha_status make_standard(seed_case *c, mha_variant **layer, mha_error *error)
{
    const mha_standard_mha_options o = {
        .size = sizeof o, .d_model = seed_integer(c, "d_model"), .num_heads = seed_integer(c, "heads")};
    return mha_standard_mha_create(c->ctx, &o, layer, error);
}

static mha_status make_moe(seed_case *c, mha_variant **layer, mha_error *error)
{
    const char *output = verify_text(&c->config, "expert_output");
    const mha_moe_heads_options o = {.size = sizeof o,
                                     .d_model = seed_integer(c, "d_model"),
                                     .num_heads = seed_integer(c, "heads"),
                                     .num_experts = seed_integer(c, "experts"),
                                     .top_k = seed_integer(c, "top_k"),
                                     .expert_output = strcmp(output, "slot") == 0    ? MHA_EXPERT_SLOT
                                                      : strcmp(output, "plain") == 0 ? MHA_EXPERT_PLAIN
                                                                                     : MHA_EXPERT_PROJECT};
    return mha_moe_heads_create(c->ctx, &o, layer, error);
}

static mha_status make_pruning(seed_case *c, mha_variant **layer, mha_error *error)
{
    const mha_head_pruning_options o = {.size = sizeof o,
                                        .d_model = seed_integer(c, "d_model"),
                                        .num_heads = seed_integer(c, "heads"),
                                        .prune_ratio = verify_real(&c->config, "prune_ratio")};
    return mha_head_pruning_create(c->ctx, &o, layer, error);
}

static mha_status make_grouped(seed_case *c, mha_variant **layer, mha_error *error)
{
    const mha_grouped_query_options o = {.size = sizeof o,
                                         .d_model = seed_integer(c, "d_model"),
                                         .num_heads = seed_integer(c, "heads"),
                                         .kv_groups = seed_integer(c, "kv_groups")};
    return mha_grouped_query_create(c->ctx, &o, layer, error);
}

static mha_status make_adaptive(seed_case *c, mha_variant **layer, mha_error *error)
{
    const int64_t count = (int64_t)json_array_size(json_object_get(c->config.object, "head_options"));
    int64_t options[16];
    if (count < 1 || count > 16)
        return verify_fault(&c->entry, "\"head_options\" must be an array of 1 to 16 elements (got %lld)",
                            (long long)count);
    verify_ints(&c->config, "head_options", options, count);
    const mha_adaptive_heads_options o = {.size = sizeof o,
                                          .d_model = seed_integer(c, "d_model"),
                                          .head_options = options,
                                          .head_option_count = count,
                                          .predictor_width = seed_integer(c, "hidden")};
    return mha_adaptive_heads_create(c->ctx, &o, layer, error);
}

static mha_status make_llama(seed_case *c, mha_variant **layer, mha_error *error)
{
    mha_llama_attention_options o = {.size = sizeof o,
                                     .hidden_size = seed_integer(c, "d_model"),
                                     .num_heads = seed_integer(c, "heads"),
                                     .num_kv_heads =
                                         verify_has(&c->config, "kv_heads") ? seed_integer(c, "kv_heads") : 0,
                                     .rotary = is_true(c, "rotary")};
    if (o.rotary) o.rope.theta = verify_real(&c->config, "rope_base");
    return mha_llama_attention_create(c->ctx, &o, layer, error);
}

/* Returns the first constructor that matches the tensors and configuration of the case. */
static const struct kind {
    const char *tensor, *key;
    mha_status (*make)(seed_case *c, mha_variant **layer, mha_error *error);
    const char *query, *key_input, *value_input;
} kinds[] = {
    {"param.heads.0.w_q", "heads", make_stacked, "input.x", NULL, NULL},
    {"param.heads.0.q_proj.weight", "heads", make_stacked, "input.x", NULL, NULL},
    {"param.w_q", "d_in", make_self, "input.x", NULL, NULL},
    {"input.query", "input_dim", make_qkv, "input.query", "input.key", "input.value"},
    {"param.router.weight", "experts", make_moe, "input.q", "input.k", "input.v"},
    {"param.head_importance.weight", "prune_ratio", make_pruning, "input.q", "input.k", "input.v"},
    {"param.head_predictor.0.weight", "head_options", make_adaptive, "input.q", "input.k", "input.v"},
    {"input.q", "kv_groups", make_grouped, "input.q", "input.k", "input.v"},
    {"input.q", "d_model", make_standard, "input.q", "input.k", "input.v"},
    {"param.o_proj.weight", "d_in", make_weight_split, "input.x", NULL, NULL},
    {"param.o_proj.weight", "d_model", make_llama, "input.x", NULL, NULL},
    {"param.q_proj.weight", "d_in", make_self, "input.x", NULL, NULL},
};

/* ---- inputs and parameters ---- */

/* Reads [batch, tokens, width], or [tokens, width] as a batch of one. */
static const float *sequence(layer_case *l, const char *name, int64_t *tokens)
{
    const mha_tensor *t = mha_file_find(l->c->file, name);
    int64_t shape[3] = {l->in.batch ? l->in.batch : -1, *tokens ? *tokens : -1, -1};
    const int64_t width = verify_has(&l->c->config, "d_in")        ? seed_integer(l->c, "d_in")
                          : verify_has(&l->c->config, "input_dim") ? seed_integer(l->c, "input_dim")
                                                                   : seed_integer(l->c, "d_model");
    shape[2] = width;
    const bool flat = t && t->rank == 2;
    const float *data = seed_values(l->c, name, flat ? 2 : 3, flat ? shape + 1 : shape);
    l->in.batch = flat ? 1 : shape[0];
    *tokens = shape[1];
    return data;
}

static mha_mask mask(layer_case *l, const char *name, bool bytes)
{
    const mha_tensor *t = mha_file_find(l->c->file, name);
    mha_mask m = {0};
    if (!t) return m;
    m.rank = t->rank;
    for (int n = 0; n < t->rank && n < 4; n++)
        m.shape[n] = t->shape[n];
    int64_t shape[32];
    memcpy(shape, t->shape, (size_t)t->rank * sizeof *shape);
    const float *values = seed_values(l->c, name, t->rank, shape);
    uint8_t *keep = values && bytes ? verify_alloc(&l->c->memory, t->elements, 1, &l->c->entry) : NULL;
    for (int64_t n = 0; keep && n < t->elements; n++)
        keep[n] = values[n] != 0;
    m.data = bytes ? (const void *)keep : values;
    return m;
}

static void read_past(layer_case *l)
{
    int64_t shape[4] = {l->in.batch, -1, -1, -1};
    if (!seed_has(l->c, "input.past_key")) return;
    shape[1] = verify_has(&l->c->config, "kv_heads") ? seed_integer(l->c, "kv_heads") : seed_integer(l->c, "heads");
    shape[3] = seed_integer(l->c, "head_dim");
    l->in.past_key = seed_values(l->c, "input.past_key", 4, shape);
    l->in.past_value = seed_values(l->c, "input.past_value", 4, shape);
    l->in.past_len = shape[2] > 0 ? shape[2] : 0;
}

static void read_dropout(layer_case *l)
{
    seed_case *c = l->c;
    if (!seed_has(c, "mask.dropout")) return;
    l->in.training = 1;
    if (c->from_seed) {
        l->in.rng = &c->at_dropout;
        return;
    }
    int64_t shape[4] = {l->in.batch, seed_integer(c, "heads"), l->in.q_len, l->in.q_len};
    const float *values = seed_values(c, "mask.dropout", 4, shape);
    const int64_t count = shape[0] * shape[1] * shape[2] * shape[3];
    uint8_t *keep = values ? verify_alloc(&c->memory, count, 1, &c->entry) : NULL;
    for (int64_t n = 0; keep && n < count; n++)
        keep[n] = values[n] != 0;
    l->in.dropout_keep = keep;
}

/* Reads the positions, which are integers stored as F32. */
static void read_positions(layer_case *l)
{
    int64_t shape[2] = {l->in.batch, l->in.q_len};
    if (!seed_has(l->c, "const.position_ids")) return;
    const float *values = seed_values(l->c, "const.position_ids", 2, shape);
    const int64_t count = l->in.batch * l->in.q_len;
    int64_t *positions = values ? verify_alloc(&l->c->memory, count, sizeof *positions, &l->c->entry) : NULL;
    for (int64_t n = 0; positions && n < count; n++)
        positions[n] = values[n] >= 0 && values[n] < 0x1p24f ? (int64_t)values[n] : 0;
    l->in.positions = positions;
}

static bool read_input(layer_case *l)
{
    seed_case *c = l->c;
    l->in.size = sizeof l->in;
    l->in.query = sequence(l, l->query, &l->in.q_len);
    if (l->key) l->in.key = sequence(l, l->key, &l->in.kv_len);
    if (l->value) l->in.value = sequence(l, l->value, &l->in.kv_len);
    l->in.keep = mask(l, "mask.keep", true);
    l->in.blocked = mask(l, "mask.blocked", false);
    l->in.additive = mask(l, "mask.additive", false);
    read_positions(l);
    read_past(l);
    read_dropout(l);
    l->in.want_weights = l->in.want_scores = 1;
    return c->entry.error->status == MHA_OK;
}

/* Loads the parameters from the file, or lets the layer initialize them and compares them with the index. */
static bool read_parameters(layer_case *l)
{
    seed_case *c = l->c;
    mha_error error = {0};
    int64_t count;
    if (!seed_ok(c, mha_variant_init(l->layer, c->from_seed ? &c->at_parameters : NULL, &error), &error)) return false;
    const mha_named_tensor *list = mha_variant_parameters(l->layer, &count);
    for (int64_t n = 0; n < count; n++) {
        char name[80];
        int64_t shape[4], numbers = 1;
        snprintf(name, sizeof name, "param.%s", list[n].name);
        memcpy(shape, list[n].shape, sizeof shape);
        const float *want = seed_values(c, name, list[n].rank, shape);
        if (!want) return false;
        for (int d = 0; d < list[n].rank; d++)
            numbers *= shape[d];
        if (c->from_seed)
            verify_measured(c->outcome, name, memcmp(want, list[n].data, (size_t)numbers * sizeof *want) != 0, 0);
        else
            memcpy(list[n].data, want, (size_t)numbers * sizeof *want);
    }
    return seed_ok(c, mha_variant_update(l->layer, &error), &error);
}

/* ---- run of a case ---- */

static void run(layer_case *l)
{
    seed_case *c = l->c;
    mha_error error = {0};
    if (!read_input(l) || !read_parameters(l)) return;
    const mha_tensor *output = mha_file_find(c->file, "expect.output");
    l->d_out = output && output->rank ? output->shape[output->rank - 1] : 0;
    int64_t shape[3] = {l->in.batch, l->in.q_len, -1};
    const bool flat = output && output->rank == 2;
    if (!verify_tensor(&c->entry, c->file, "expect.output", flat ? 2 : 3, shape + flat)) return;
    l->output = seed_alloc(c, output->elements);
    if (!l->output || !seed_ok(c, mha_trace_create(c->ctx, &l->trace, &error), &error)) return;
    if (!seed_ok(c, mha_variant_forward(l->layer, &l->in, l->output, l->trace, &error), &error)) return;
    layer_compare_forward(l);
    layer_compare_backward(l);
}

bool seed_layer(seed_case *c)
{
    for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++) {
        const struct kind *k = &kinds[n];
        if (!seed_has(c, k->tensor) || !verify_has(&c->config, k->key)) continue;
        layer_case l = {.c = c, .query = k->query, .key = k->key_input, .value = k->value_input};
        mha_error error = {0};
        const mha_status status = k->make(c, &l.layer, &error);
        if (c->entry.error->status == MHA_OK && seed_ok(c, status, &error)) run(&l);
        mha_trace_free(l.trace);
        mha_variant_free(l.layer);
        return true;
    }
    return false;
}
