/* test_model_choosing.c - tests which operations are supported and which are rejected for a model whose layers select
 * heads per text. */
#include "mha/model_create.h"
#include "mha/model_grads.h"
#include "mha/model_save.h"
#include "mha/prune.h"
#include "mha/regroup.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/choosing.h"
#include "support/model/model_case.h"
#include "support/model/train_case.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { B = CHOOSING_B, L = CHOOSING_L, E = CHOOSING_E, H = CHOOSING_H };

static const char two_layers[] = "[{\"moe_heads\":{\"top_k\":2}},{\"head_pruning\":{\"prune_ratio\":0.5}}]";
static const char three_layers[] =
    "[{\"moe_heads\":{}},{\"adaptive_heads\":{\"head_options\":[1,4,8]}},{\"head_pruning\":{\"prune_ratio\":0.5}}]";

/* Hidden states must be bitwise identical for padded and packed texts and for any number of threads. */
static void test_same_bits_packed_and_threaded(void **state)
{
    (void)state;
    const int64_t starts[] = {0, 6, 9, 10, 15};
    float hidden[3][B * L * E] = {{0}};
    int32_t packed[15];
    for (int pass = 0; pass < 3; pass++) {
        const mha_ctx_options o = {.size = sizeof o, .threads = pass == 1 ? 3 : 1};
        mha_ctx *ctx = NULL;
        assert_int_equal(mha_ctx_create(&o, &ctx, NULL), MHA_OK);
        mha_model *model = choosing_model(ctx, choosing_config(three_layers, 3));
        mha_model_input in = choosing_input(false);
        const mha_model_output out = {.size = sizeof out, .last_hidden = hidden[pass]};
        for (int b = 0; b < B; b++)
            memcpy(packed + starts[b], in.ids + b * L, (size_t)(starts[b + 1] - starts[b]) * sizeof *packed);
        if (pass == 2) in = (mha_model_input){.size = sizeof in, .batch = B, .ids = packed, .starts = starts};
        assert_int_equal(mha_model_forward(model, &in, &out, NULL), MHA_OK);
        mha_model_free(model);
        mha_ctx_free(ctx);
    }
    const mha_model_input in = choosing_input(false);
    for (int n = 0; n < B * L; n++)
        if (in.mask[n]) {
            const int64_t at = starts[n / L] + n % L;
            assert_memory_equal(hidden[0] + n * E, hidden[1] + n * E, E * sizeof(float));
            assert_memory_equal(hidden[0] + n * E, hidden[2] + at * E, E * sizeof(float));
        }
}

static int see(void *user, const mha_model_stats *stats)
{
    (void)user, (void)stats;
    return 0;
}

/* Statistics require the probabilities of all heads. Hidden states must be the same with and without statistics, in
 * layers that select all heads and in layers that select some. */
static void test_all_heads_with_statistics(void **state)
{
    (void)state;
    static const char *const layers[] = {"[{\"moe_heads\":{\"top_k\":4}},{\"moe_heads\":{\"top_k\":2}}]",
                                         "[{\"moe_heads\":{\"top_k\":2}},{\"moe_heads\":{\"top_k\":4}}]"};
    for (int n = 0; n < 2; n++) {
        float some[B * L * E], all[B * L * E];
        mha_error err = {0};
        mha_model *model = choosing_model(NULL, choosing_config(layers[n], 2));
        const mha_model_input in = choosing_input(false);
        const mha_model_output out = {.size = sizeof out, .last_hidden = some};
        const mha_model_output seen = {.size = sizeof seen, .last_hidden = all, .on_stats = see};
        if (mha_model_forward(model, &in, &out, &err) != MHA_OK) fail_msg("%s", err.message);
        assert_int_equal(mha_model_forward(model, &in, &seen, NULL), MHA_OK);
        assert_memory_equal(some, all, sizeof all);
        mha_model_free(model);
    }
}

static const char mlm[] =
    "{" CHOOSING_SIZES
    "\"num_hidden_layers\":3,\"mha.attention\":[{\"moe_heads\":{}},{\"head_pruning\":{\"prune_ratio\":0.5}},"
    "{\"adaptive_heads\":{\"head_options\":[2,1,4,8]}}]}";

/* Training must change the scores of every layer. A saved model must give bitwise identical hidden states, and a
 * resumed training run must be bitwise identical to the original run. */
static void test_learns_and_is_saved(void **state)
{
    (void)state;
    const mha_model_options bare = {.size = sizeof bare, .no_tokenizer = 1};
    const mha_train_options o = {.size = sizeof o, .rate = 1e-2, .dropout = {.attention = 0.1}};
    const char *folder = files_folder();
    float hidden[2][B * L * E];
    mha_trainer *trainer = NULL, *resumed = NULL;
    mha_error err = {0};
    mha_model *model = choosing_model(NULL, mlm);
    assert_int_equal(mha_trainer_create(model, &o, &trainer, &err), MHA_OK);
    int64_t count;
    const mha_named_tensor *list = mha_trainer_weights(trainer, &count);
    float before[3 * H], after[3 * H];
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t n = 0, at = 0; n < count; n++)
            if (strstr(list[n].name, "head_choice.bias")) memcpy((pass ? after : before) + H * at++, list[n].data, 16);
        for (int step = 0; pass == 0 && step < 12; step++)
            train_on(trainer, 8, 16);
    }
    assert_memory_not_equal(before, after, H * sizeof(float));
    assert_memory_not_equal(before + H, after + H, H * sizeof(float));
    assert_memory_not_equal(before + 2 * H, after + 2 * H, H * sizeof(float));
    if (mha_trainer_save(trainer, folder, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
    mha_model *opened = case_model(NULL, folder, &bare);
    const mha_model *both[] = {mha_trainer_model(trainer), opened};
    const mha_model_input in = choosing_input(true);
    for (int n = 0; n < 2; n++) {
        const mha_model_output out = {.size = sizeof out, .last_hidden = hidden[n]};
        assert_int_equal(mha_model_forward(both[n], &in, &out, NULL), MHA_OK);
    }
    assert_memory_equal(hidden[0], hidden[1], sizeof *hidden);
    assert_int_equal(mha_trainer_resume(NULL, folder, &o, &resumed, &err), MHA_OK);
    train_on(trainer, 8, 16), train_on(resumed, 8, 16);
    train_expect_alike(trainer, resumed);
    mha_trainer_free(trainer), mha_trainer_free(resumed);
    mha_model_free(model), mha_model_free(opened);
    files_remove(folder);
}

static void test_descriptions(void **state)
{
    (void)state;
    mha_model *model = choosing_model(NULL, choosing_config(two_layers, 2));
    const mha_model_attention *a = mha_model_describe(model)->attention_per_layer;
    assert_int_equal(a[0].choice, MHA_CHOICE_EXPERTS);
    assert_int_equal(a[0].heads_per_text, 2);
    assert_int_equal(a[1].choice, MHA_CHOICE_HEADS);
    assert_int_equal(a[1].selection, MHA_SELECTION_SOFT);
    assert_int_equal(a[1].heads_per_text, 2);
    mha_model_free(model);
}

/* Tests models opened as bf16, f16 and q8_0. The scores must remain f32. */
static void test_other_types(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_BF16, MHA_F16, MHA_Q8_0};
    const char *folder = files_folder();
    float hidden[B * L * E], other[B * L * E];
    mha_model *model = choosing_model(NULL, choosing_config(three_layers, 3));
    const mha_model_input in = choosing_input(false);
    mha_model_output out = {.size = sizeof out, .last_hidden = hidden};
    assert_int_equal(mha_model_forward(model, &in, &out, NULL), MHA_OK);
    assert_int_equal(mha_model_save(model, folder, NULL, NULL), MHA_OK);
    out.last_hidden = other;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1, .dtype = types[t]};
        mha_model *opened = case_model(NULL, folder, &o);
        assert_int_equal(mha_model_forward(opened, &in, &out, NULL), MHA_OK);
        for (int n = 0; n < B * L; n++)
            if (in.mask[n]) case_near(mha_dtype_name(types[t]), hidden + n * E, other + n * E, E, 0.1);
        mha_model_free(opened);
    }
    mha_model_free(model);
    files_remove(folder);
}

/* ---- error messages ---- */

static void expect_config(const char *config, mha_status status, const char *message)
{
    mha_model *model = NULL;
    mha_error err = {0};
    assert_int_equal(mha_model_create(NULL, config, NULL, &model, &err), status);
    assert_null(model);
    assert_string_equal(err.message, message);
}

static void test_wrong_configs(void **state)
{
    (void)state;
    expect_config(choosing_config("{\"moe_heads\":{\"top_k\":5}}", 1), MHA_ERR_FORMAT,
                  "config.json: mha.attention.moe_heads.top_k must be an integer from 1 to 4 (got 5)");
    expect_config(choosing_config("{\"moe_heads\":2}", 1), MHA_ERR_FORMAT,
                  "config.json: mha.attention.moe_heads must be an object (got 2)");
    expect_config(choosing_config("{\"moe_heads\":{\"experts\":2}}", 1), MHA_ERR_FORMAT,
                  "config.json: mha.attention.moe_heads.experts: unknown key (known: top_k)");
    expect_config(choosing_config("[null,{\"head_pruning\":{}}]", 2), MHA_ERR_FORMAT,
                  "config.json: mha.attention[1].head_pruning.prune_ratio must be a number from 0 to 1 (got nothing)");
    expect_config(
        choosing_config("{\"head_pruning\":{\"prune_ratio\":1}}", 1), MHA_ERR_FORMAT,
        "config.json: mha.attention.head_pruning.prune_ratio must be a fraction that keeps at least one head (got 1)");
    expect_config(choosing_config("{\"head_pruning\":{\"prune_ratio\":0.5,\"selection\":\"best\"}}", 1), MHA_ERR_FORMAT,
                  "config.json: mha.attention.head_pruning.selection must be \"hard\", \"soft\" or "
                  "\"straight_through\" (got \"best\")");
    expect_config(choosing_config("{\"moe_heads\":{},\"head_pruning\":{\"prune_ratio\":0.5}}", 1), MHA_ERR_FORMAT,
                  "config.json: mha.attention: head_pruning and moe_heads must not both be set");
    expect_config(choosing_config("{\"adaptive_heads\":{}}", 1), MHA_ERR_FORMAT,
                  "config.json: mha.attention.adaptive_heads.head_options must be an array (got nothing)");
    expect_config(choosing_config("{\"adaptive_heads\":{\"head_options\":[]}}", 1), MHA_ERR_FORMAT,
                  "config.json: mha.attention.adaptive_heads.head_options must have 1 to 16 head counts (got 0)");
    expect_config(choosing_config("{\"adaptive_heads\":{\"head_options\":[2,3]}}", 1), MHA_ERR_FORMAT,
                  "config.json: mha.attention.adaptive_heads.head_options[1] must be a head count that divides 16 "
                  "columns into heads of width 1 to 4096 (got 3)");
    expect_config(choosing_config("{\"alibi\":true,\"adaptive_heads\":{\"head_options\":[2,4]}}", 1),
                  MHA_ERR_UNSUPPORTED, "config.json: mha.attention: adaptive_heads must not be combined with alibi");
    expect_config(choosing_config("{\"moe_heads\":{\"top_k\":3}},\"mha.heads\":[[0,2]]", 1), MHA_ERR_FORMAT,
                  "config.json: mha.attention.moe_heads.top_k must be an integer from 1 to 2 (got 3)");
    expect_config(
        choosing_config("{\"adaptive_heads\":{\"head_options\":[2]}},\"mha.kv_heads\":{\"keys\":2,\"values\":2}", 1),
        MHA_ERR_UNSUPPORTED, "config.json: mha.attention: adaptive_heads must not be combined with shared keys");
    expect_config("{\"model_type\":\"gpt2\",\"mha.attention\":{\"moe_heads\":{}}}", MHA_ERR_UNSUPPORTED,
                  "config.json: mha.attention.moe_heads must be absent in a decoder, because heads are selected by "
                  "the mean over all tokens, which would leak later tokens (got model_type gpt2)");
}

/* Heads of a layer that selects heads must not be removed or regrouped. Heads of another layer of the same model can be
 * removed. */
static void test_heads_stay_and_are_not_regrouped(void **state)
{
    (void)state;
    const mha_regroup_options r = {.size = sizeof r, .key_heads = 2};
    uint8_t keep[2 * H];
    mha_model *model = choosing_model(NULL, choosing_config("[{\"moe_heads\":{}},null]", 2)), *fewer = NULL;
    mha_model_edit *edit = NULL;
    mha_error err = {0};
    memset(keep, 1, sizeof keep);
    keep[1] = 0;
    assert_int_equal(mha_prune(model, keep, NULL, &edit, &err), MHA_ERR_UNSUPPORTED);
    const char refused[] =
        "heads of layer 0 must not be removed or regrouped, since the layer selects its heads for each text";
    assert_string_equal(err.message, refused);
    assert_int_equal(mha_regroup(model, &r, &edit, &err), MHA_ERR_UNSUPPORTED);
    assert_string_equal(err.message, refused);
    double scores[2 * H] = {0};
    for (int h = 0; h < H; h++)
        scores[H + h] = 1 + (h != 2); /* layer 0 has the lowest scores, but its heads must be kept */
    const mha_prune_rule rule = {.size = sizeof rule, .count = 1};
    assert_int_equal(mha_prune_choose(model, scores, &rule, keep, &err), MHA_OK);
    assert_int_equal(keep[0] + keep[1] + keep[2] + keep[3], H);
    assert_int_equal(keep[H + 2], 0);
    const mha_train_options gated = {.size = sizeof gated, .gates = {.penalty = MHA_GATES_L0}};
    mha_trainer *trainer = NULL;
    assert_int_equal(mha_trainer_create(model, &gated, &trainer, &err), MHA_ERR_UNSUPPORTED);
    assert_string_equal(err.message,
                        "mha_train_options: gates must be unset for a model that selects heads per text (got layer 0)");
    if (mha_prune(model, keep, NULL, &edit, &err) != MHA_OK) fail_msg("%s", err.message);
    if (mha_model_edit_open(edit, &fewer, &err) != MHA_OK) fail_msg("%s", err.message);
    assert_int_equal(mha_model_describe(fewer)->heads_per_layer[1], H - 1);
    assert_int_equal(mha_model_describe(fewer)->attention_per_layer[0].heads_per_text, 2);
    mha_model_free(fewer);
    mha_model_edit_free(edit);
    mha_model_free(model);
}

static int ignore(void *user, int64_t layer, int64_t heads, const float *probs)
{
    (void)user, (void)layer, (void)heads, (void)probs;
    return 0;
}

static void expect_refused(mha_status status, const mha_error *err, const char *what)
{
    char want[160];
    snprintf(want, sizeof want, "per-head %s must not be requested for a model with adaptive_heads (got layer 1)",
             what);
    assert_int_equal(status, MHA_ERR_UNSUPPORTED);
    assert_string_equal(err->message, want);
}

/* If the head count differs between texts, per-head requests must be rejected. */
static void test_no_single_heads_if_head_count_varies(void **state)
{
    (void)state;
    float gates[3 * B * H] = {0}, fills[3 * E] = {0};
    mha_model *model = choosing_model(NULL, choosing_config(three_layers, 3));
    mha_model_grads *grads = NULL;
    mha_error err = {0};
    mha_model_input in = choosing_input(false);
    mha_model_output out = {.size = sizeof out, .on_attention = ignore};
    const mha_model_gradient g = {.size = sizeof g, .gates = gates};
    assert_int_equal(mha_model_grads_create(model, NULL, &grads, &err), MHA_OK);
    assert_int_equal(mha_model_grads_forward(grads, &in, NULL, &err), MHA_OK);
    expect_refused(mha_model_grads_backward(grads, &g, &err), &err, "gradients");
    expect_refused(mha_model_forward(model, &in, &out, &err), &err, "maps");
    in.gates = gates;
    expect_refused(mha_model_forward(model, &in, NULL, &err), &err, "gates");
    in.gates = NULL;
    in.fills = fills;
    expect_refused(mha_model_forward(model, &in, NULL, &err), &err, "fills");
    mha_model_grads_free(grads);
    mha_model_free(model);
}

/* If the head count differs between sequences, the attention layer must reject per-head gates, maps and masks. */
static void test_no_single_heads_of_such_a_layer(void **state)
{
    (void)state;
    static const float weight[E * E] = {0}, gates[B * H] = {0};
    static const uint8_t masks[H * L * L] = {0};
    const mha_matrix m = {.weight = weight, .bias = weight, .out = E};
    const mha_layer_choice choice = {
        .of = MHA_CHOICE_OPTIONS, .score = m, .hidden = m, .options = {2, 8}, .option_count = 2};
    const mha_attn_layer_options o = {
        .size = sizeof o, .hidden = E, .heads = H, .q = m, .k = m, .v = m, .o = m, .choice = choice};
    float x[B * L * E] = {0}, y[B * L * E], probs[B * H * L * L];
    mha_attn_layer *layer = NULL;
    mha_layer_input in[3];
    static const char *const what[] = {"gates", "maps", "masks"};
    assert_int_equal(mha_attn_layer_create(NULL, &o, &layer, NULL), MHA_OK);
    for (int n = 0; n < 3; n++)
        in[n] = (mha_layer_input){.size = sizeof *in, .batch = B, .length = L};
    assert_int_equal(mha_attn_layer_forward(layer, &in[0], x, y, NULL), MHA_OK);
    in[0].gates = (mha_cview){gates, {H, 1}};
    in[1].probs = probs;
    in[2].keep = (mha_cview){masks, {0, L * L, L, 1}};
    for (int n = 0; n < 3; n++) {
        mha_error err = {0};
        assert_int_equal(mha_attn_layer_forward(layer, &in[n], x, y, &err), MHA_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, "must not be set if the head count varies per sequence"));
        assert_int_equal(strncmp(err.message + strlen("attention layer: per-head "), what[n], strlen(what[n])), 0);
    }
    mha_attn_layer_free(layer);
}

/* The model must report which heads each text uses, by their index among the heads of the layer. */
static void test_reports_the_heads_of_a_text(void **state)
{
    (void)state;
    static const char layers[] = "[{\"moe_heads\":{\"top_k\":1}},null,{\"head_pruning\":{\"prune_ratio\":0.25}}]";
    char config[1024];
    uint8_t kept[3][B][H];
    snprintf(config, sizeof config,
             "{" CHOOSING_SIZES
             "\"num_hidden_layers\":3,\"mha.heads\":[[1,3],[0,1,2,3],[0,1,2,3]],\"mha.attention\":%s}",
             layers);
    mha_model *model = choosing_model(NULL, config);
    const mha_model_input in = choosing_input(false);
    const mha_model_output out = {.size = sizeof out, .kept = kept[0][0]};
    assert_int_equal(mha_model_forward(model, &in, &out, NULL), MHA_OK);
    for (int b = 0; b < B; b++) {
        int sums[3] = {0};
        for (int n = 0; n < 3 * H; n++)
            sums[n / H] += kept[n / H][b][n % H];
        assert_int_equal(kept[0][b][2] + kept[0][b][3], 0);
        assert_int_equal(sums[0], 1);
        assert_int_equal(sums[1], H);
        assert_int_equal(sums[2], H - 1);
    }
    mha_model_free(model);
}

/* A NaN in the weights of a score must reach the hidden states. It must not be replaced by ReLU or by the selection. */
static void test_nan_scores_are_not_hidden(void **state)
{
    (void)state;
    for (int n = 0; n < choosing_count; n++) {
        if (!choosing_cases[n].soft) continue;
        mha_model *model = choosing_model(NULL, choosing_config(choosing_cases[n].entry, 1));
        mha_trainer *trainer = NULL;
        float hidden[B * L * E];
        const mha_model_input in = choosing_input(false);
        const mha_model_output out = {.size = sizeof out, .last_hidden = hidden};
        int64_t count;
        assert_int_equal(mha_trainer_create(model, NULL, &trainer, NULL), MHA_OK);
        const mha_named_tensor *list = mha_trainer_weights(trainer, &count);
        for (int64_t t = 0; t < count; t++)
            if (strstr(list[t].name, choosing_cases[n].options[0] ? "choice_hidden.bias" : "choice.bias"))
                *(float *)list[t].data = NAN;
        assert_int_equal(mha_trainer_refresh(trainer, NULL), MHA_OK);
        assert_int_equal(mha_model_forward(mha_trainer_model(trainer), &in, &out, NULL), MHA_OK);
        assert_true(isnan(hidden[0]));
        mha_trainer_free(trainer);
        mha_model_free(model);
    }
}

/* With a budget of 0, 1, 2, ... allocations, each failed forward or backward pass must return MHA_ERR_MEMORY and free
 * its memory. */
static void test_passes_without_memory(void **state)
{
    (void)state;
    counting memory = {0};
    atomic_store(&memory.budget, -1);
    const mha_ctx_options o = {.size = sizeof o, .threads = 1, .allocator = counting_allocator(&memory)};
    const mha_model_gradient g = {.size = sizeof g};
    const mha_model_input in = choosing_input(false);
    mha_ctx *ctx = NULL;
    assert_int_equal(mha_ctx_create(&o, &ctx, NULL), MHA_OK);
    mha_model *model = choosing_model(ctx, choosing_config(three_layers, 3));
    mha_status status = MHA_ERR_MEMORY;
    int refused = 0;
    for (long budget = 0; status != MHA_OK && budget < 1000; budget++) {
        mha_model_grads *grads = NULL;
        const long before = atomic_load(&memory.live);
        atomic_store(&memory.budget, atomic_load(&memory.calls) + budget);
        status = mha_model_forward(model, &in, NULL, NULL);
        if (status == MHA_OK) status = mha_model_grads_create(model, NULL, &grads, NULL);
        if (status == MHA_OK) status = mha_model_grads_forward(grads, &in, NULL, NULL);
        if (status == MHA_OK) status = mha_model_grads_backward(grads, &g, NULL);
        atomic_store(&memory.budget, -1);
        refused += status == MHA_ERR_MEMORY;
        assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
        mha_model_grads_free(grads);
        assert_int_equal(atomic_load(&memory.live), before);
    }
    assert_int_equal(status, MHA_OK);
    assert_true(refused > 20);
    mha_model_free(model);
    mha_ctx_free(ctx);
}

static void test_wrong_layers(void **state)
{
    (void)state;
    static const float weight[E * E] = {0};
    const mha_matrix m = {.weight = weight, .bias = weight};
    const mha_attn_layer_options good = {.size = sizeof good,
                                         .hidden = E,
                                         .heads = H,
                                         .q = m,
                                         .k = m,
                                         .v = m,
                                         .o = m,
                                         .choice = {.of = MHA_CHOICE_EXPERTS, .keep = 2, .score = m}};
    mha_attn_layer_options wrong[5];
    static const char *const messages[] = {
        "attention layer: choice.keep must be from 1 to heads = 4 (got 0)",
        "attention layer: choice.score must have a weight and a bias",
        "attention layer: choice must not be combined with causal attention, because the mean over all tokens would "
        "leak later "
        "tokens",
        "attention layer: choice.of must be a value of mha_choice (got 7)",
        "attention layer: choice.selection must be a value of mha_selection (got 9)",
    };
    for (int n = 0; n < 5; n++)
        wrong[n] = good;
    wrong[0].choice.keep = 0;
    wrong[1].choice.score.bias = NULL;
    wrong[2].causal = 1;
    wrong[3].choice.of = (mha_choice)7;
    wrong[4].choice.of = MHA_CHOICE_HEADS;
    wrong[4].choice.selection = (mha_selection)9;
    for (int n = 0; n < 5; n++) {
        mha_attn_layer *layer = NULL;
        mha_error err = {0};
        assert_int_not_equal(mha_attn_layer_create(NULL, &wrong[n], &layer, &err), MHA_OK);
        assert_null(layer);
        assert_string_equal(err.message, messages[n]);
    }
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    case_create_without_memory(choosing_config(three_layers, 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_packed_and_threaded),
        cmocka_unit_test(test_all_heads_with_statistics),
        cmocka_unit_test(test_learns_and_is_saved),
        cmocka_unit_test(test_descriptions),
        cmocka_unit_test(test_other_types),
        cmocka_unit_test(test_wrong_configs),
        cmocka_unit_test(test_heads_stay_and_are_not_regrouped),
        cmocka_unit_test(test_no_single_heads_if_head_count_varies),
        cmocka_unit_test(test_no_single_heads_of_such_a_layer),
        cmocka_unit_test(test_reports_the_heads_of_a_text),
        cmocka_unit_test(test_nan_scores_are_not_hidden),
        cmocka_unit_test(test_passes_without_memory),
        cmocka_unit_test(test_wrong_layers),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
