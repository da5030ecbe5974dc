/* tour_of_plain.c - tours of the plain layer, and of shared keys and values compared with it at the same width, head
 * count and input. */
#include "tour/tour_choice.h"
#include "tour/tour_inputs.h"
#include "tour/tour_layer.h"
#include "tour/tours.h"

/* ---- plain multi-head attention ---- */

enum { LENGTHS = 3, LQ = 3, LK = 5 };
/* Sequences of five, four and three keys; the first query of the last sequence has no unmasked key. */
static const uint8_t keep[LENGTHS * LQ * LK] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1,
                                                1, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0};

static void show_plain(tour *t, const tour_inputs *x)
{
    const char *queries = TOUR_DIMS(t, LENGTHS, LQ, x->width);
    float shown[LENGTHS * LQ * LK];
    for (int n = 0; n < LENGTHS * LQ * LK; n++)
        shown[n] = keep[n];
    tour_say(t, "Queries by head",
             tour_format(t, "mha_standard_mha_create (.d_model = %lld, .num_heads = %lld), mha_variant_init",
                         (long long)x->width, (long long)x->heads),
             "The layer has four projections %s with biases. Each of the %s gets %s of the %s "
             "columns: queries %s become %s (batch, head, token, feature). Keys and values are split "
             "in the same way.",
             TOUR_DIMS(t, x->width, x->width), tour_many(t, x->heads, "head"),
             tour_count_word(t, tour_inputs_head_dim(x)), tour_count_word(t, x->width), queries,
             TOUR_DIMS(t, LENGTHS, x->heads, LQ, tour_inputs_head_dim(x)));
    tour_show(t, "query", x->query, TOUR_SHAPE(LENGTHS, LQ, x->width));
    tour_show_trace(t, "q", MHA_STEP_Q);

    tour_say(t, "Weights with a boolean mask", "mha_variant_input, .keep = {mask, 4, {3, 1, 3, 5}}",
             "0 marks a masked key: its score becomes -1e9, and its weight after softmax is 0. The axis of "
             "size 1 is broadcast over the heads. The first query of the last sequence has no unmasked key; "
             "its five scores of -1e9 are equal, so its weights are uniform instead of 0 divided by 0.");
    tour_show_weights(t, "mask", shown, TOUR_SHAPE(LENGTHS, 1, LQ, LK));
    tour_show_trace(t, "weights", MHA_STEP_WEIGHTS);

    tour_say(t, "Output", "mha_variant_forward, mha_variant_parameter_count, mha_trace_flops",
             "The heads are concatenated to %s and multiplied by the output projection. The layer has 4 (%lld * %lld "
             "+ %lld) parameters for any number of heads, because more heads are narrower.",
             queries, (long long)x->width, (long long)x->width, (long long)x->width);
    tour_show(t, "output", x->output, TOUR_SHAPE(LENGTHS, LQ, x->width));
    tour_count_layer(t, tour_many(t, x->heads, "head"));
}

void tour_standard_mha(tour *t)
{
    tour_inputs x = {.batch = LENGTHS,
                     .q_len = LQ,
                     .kv_len = LK,
                     .width = 8,
                     .heads = 4,
                     .keep = {.data = keep, .rank = 4, .shape = {LENGTHS, 1, LQ, LK}}};
    if (t->choice.model_chosen) {
        tour_show_layer(t, "Once upon a time there", TOUR_SHOWS_PLAIN);
        return;
    }
    TOUR_TRY(tour_inputs_begin(t, &x));
    TOUR_TRY(tour_plain_layer(t, x.width, x.heads));
    TOUR_TRY(tour_inputs_run(t, 13, &x, true));
    show_plain(t, &x);
    const int64_t fewer = x.heads % 2 == 0 ? x.heads / 2 : 1;
    TOUR_TRY(tour_plain_layer(t, x.width, fewer));
    TOUR_TRY(tour_inputs_run(t, 13, &x, true));
    tour_count_layer(t, tour_many(t, fewer, "head"));

    tour_say(t, "Saving and loading", "mha_variant_parameters, mha_tensors_write, mha_tensors_read, mha_variant_update",
             "The layer lists its parameters by name: weight and bias of q_proj, k_proj, v_proj and o_proj; "
             "two of these eight are shown. The list can be written to a safetensors file, which PyTorch also loads, "
             "and read back into a layer: examples/save_and_load.c. Gradients form a list with "
             "the same names.");
    tour_show_parameter(t, "q_proj.bias");
    tour_show_parameter(t, "o_proj.bias");
}

/* ---- shared keys and values ---- */

static mha_status grouped(tour *t, const tour_inputs *x, int64_t kv_heads)
{
    const mha_grouped_query_options options = {
        .size = sizeof options, .d_model = x->width, .num_heads = x->heads, .num_kv_heads = kv_heads};
    return mha_grouped_query_create(t->ctx, &options, tour_layer(t), &t->error);
}

static void show_groups(tour *t, const tour_inputs *x, int64_t kv_heads)
{
    const int64_t D = tour_inputs_head_dim(x), group = x->heads / kv_heads;
    const char *q = TOUR_DIMS(t, x->batch, x->heads, x->q_len, D);
    tour_say(t, "Fewer keys and values",
             tour_format(t, "mha_grouped_query_create (.num_heads = %lld, .num_kv_heads = %lld)", (long long)x->heads,
                         (long long)kv_heads),
             "The layer has %s but only %s, each shared by %s: q is %s, k and v are %s. A decoder caches k and v of "
             "every token, so %s key/value heads require %s the cache.",
             tour_many(t, x->heads, "query head"), tour_many(t, kv_heads, "key/value head"),
             tour_many(t, group, "query head"), q, TOUR_DIMS(t, x->batch, kv_heads, x->kv_len, D),
             group == 2 ? "half as many" : "these",
             group == 2 ? "half" : tour_format(t, "1/%lld of", (long long)group));
    tour_show_qkv(t);

    tour_say(t, "Weights of every query head", "mha_variant_forward (.want_weights = 1), MHA_STEP_WEIGHTS",
             "Query head h reads key/value head h / %lld: query %s read head 0%s. Each of the %s still has its own "
             "weights, %s. Keys and values are not repeated in memory.",
             (long long)group, tour_span(t, "head", 0, group),
             kv_heads < 2 ? "" : tour_format(t, ", %s read head 1", tour_span(t, "head", group, group)),
             tour_many(t, x->heads, "query head"), TOUR_DIMS(t, x->batch, x->heads, x->q_len, x->kv_len));
    tour_show_trace(t, "weights", MHA_STEP_WEIGHTS);

    tour_say(t, "Output", "mha_variant_forward, mha_variant_parameter_count, mha_trace_flops",
             "The output is %s, as in plain attention. Only the projections of k and v are smaller. A single "
             "key/value head for all query heads is called multi-query attention.",
             TOUR_DIMS(t, x->batch, x->q_len, x->width));
}

void tour_grouped_query(tour *t)
{
    tour_inputs x = {.batch = 2, .q_len = 3, .kv_len = 5, .width = 8, .heads = 4};
    tour_count plain = {0};
    if (t->choice.model_chosen) {
        tour_show_layer(t, "Once upon a time there", TOUR_SHOWS_GROUPS);
        return;
    }
    TOUR_TRY(tour_count_plain(t, &x, &plain));
    const int64_t kv_heads = x.heads % 2 == 0 ? x.heads / 2 : 1;
    TOUR_TRY(grouped(t, &x, 1));
    TOUR_TRY(tour_inputs_run(t, 42, &x, false));
    const tour_count one = tour_counted(t, "one k/v head for all");
    TOUR_TRY(grouped(t, &x, kv_heads));
    TOUR_TRY(tour_inputs_run(t, 42, &x, true));
    show_groups(t, &x, kv_heads);
    tour_show_output(t, &x, plain,
                     tour_format(t, "%s for %s", tour_many(t, kv_heads, "k/v head"), tour_count_word(t, x.heads)));
    tour_count_given(t, one);
}
