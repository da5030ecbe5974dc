/* tour_of_choices.c - tours of variants that select heads for each sequence, compared with the plain layer at the same
 * width, head count and input: experts, pruned heads, and a head count per sequence. */
#include "tour/tour_choice.h"
#include "tour/tour_inputs.h"
#include "tour/tours.h"

/* Shows the chosen heads as a tensor [batch, n]. */
static void show_chosen(tour *t, const char *name, int64_t batch)
{
    int64_t n = 0;
    mha_trace_chosen(t->trace, 0, &n);
    float *chosen = tour_floats(t, batch * n);
    for (int64_t b = 0; chosen && b < batch; b++) {
        const int32_t *list = mha_trace_chosen(t->trace, b, &n);
        for (int64_t i = 0; list && i < n; i++)
            chosen[b * n + i] = (float)list[i];
    }
    if (chosen) tour_show(t, name, chosen, TOUR_SHAPE(batch, n))->look = TOUR_WHOLE;
}

/* ---- experts ---- */

static int64_t active(const tour_inputs *x)
{
    return x->heads > 1 ? 2 : 1;
}

static mha_status experts(tour *t, const tour_inputs *x, mha_expert_output output)
{
    const mha_moe_heads_options options = {.size = sizeof options,
                                           .d_model = x->width,
                                           .num_heads = x->heads,
                                           .top_k = active(x),
                                           .expert_output = output};
    return mha_moe_heads_create(t->ctx, &options, tour_layer(t), &t->error);
}

/* Shows the layer with MHA_EXPERT_SLOT, an alternative to the published definition, on tokens from a separate seed. */
static void show_slots(tour *t, tour_inputs *x, tour_count plain, tour_count projected)
{
    const long long D = (long long)tour_inputs_head_dim(x);
    TOUR_TRY(experts(t, x, MHA_EXPERT_SLOT));
    TOUR_TRY(tour_inputs_run(t, 23, x, false));
    tour_say(t, "Slots instead of projections", "mha_moe_heads_create (.expert_output = MHA_EXPERT_SLOT)",
             "The published code adds outputs of width %lld to a sum of width %lld, which fails. One correction is an "
             "output projection per expert. The correction shown here is a slot per expert: expert e writes %s, and "
             "the columns of unselected experts remain 0. There are as many experts as heads. The layer is "
             "initialized from seed %llu.",
             D, (long long)x->width,
             D == 2 ? "columns 2 e and 2 e + 1" : tour_format(t, "columns %lld e to %lld e + %lld", D, D, D - 1),
             (unsigned long long)tour_seed(t, 23));
    show_chosen(t, "slot_chosen", x->batch);
    tour_show_trace(t, "slot_mixed", MHA_STEP_MIXED);
    tour_show(t, "slot_output", x->output, TOUR_SHAPE(x->batch, x->q_len, x->width));
    tour_count_given(t, plain);
    tour_count_given(t, projected);
    tour_count_layer(t, "with slots");
}

static void show_router(tour *t, const tour_inputs *x)
{
    const char *chosen = tour_many(t, active(x), "expert");
    tour_say(t, "Router logits",
             tour_format(t, "mha_moe_heads_create (.num_heads = %lld, .top_k = %lld), MHA_STEP_LOGITS",
                         (long long)x->heads, (long long)active(x)),
             "The %s are experts. A router maps the mean of a sequence's queries to one logit per "
             "expert: %s for three sequences.",
             tour_many(t, x->heads, "head"), TOUR_DIMS(t, x->batch, x->heads));
    tour_show_trace(t, "logits", MHA_STEP_LOGITS);

    tour_say(t, active(x) == 2 ? "Two experts for each sequence" : "One expert for each sequence",
             "mha_trace_chosen, MHA_STEP_GATES",
             "The %s with the largest logits of each row are chosen, the largest first. Softmax "
             "over these %s gives their gates; the other experts are not computed for this "
             "sequence.",
             chosen, tour_many(t, active(x), "logit"));
    show_chosen(t, "chosen", x->batch);
    tour_show_trace(t, "gates", MHA_STEP_GATES);

    tour_say(t, "Weights of the chosen experts", "mha_variant_forward (.want_weights = 1), MHA_STEP_WEIGHTS",
             "The axes are [sequence, chosen expert, query, key]. Each expert computes plain attention of width %lld.",
             (long long)tour_inputs_head_dim(x));
    tour_show_trace(t, "weights", MHA_STEP_WEIGHTS);
}

void tour_moe_heads(tour *t)
{
    tour_inputs x = {.batch = 3, .q_len = 4, .kv_len = 4, .width = 8, .heads = 4};
    tour_count plain = {0};
    TOUR_TRY(tour_count_plain(t, &x, &plain));
    TOUR_TRY(experts(t, &x, MHA_EXPERT_PROJECT));
    TOUR_TRY(tour_inputs_run(t, 152, &x, true));
    show_router(t, &x);

    tour_say(t, "Weighted sum of the experts", "MHA_STEP_MIXED",
             "Each expert has its own output projection from width %lld to %lld; the outputs are summed, weighted "
             "by the gates: %s.",
             (long long)tour_inputs_head_dim(&x), (long long)x.width, TOUR_DIMS(t, x.batch, x.q_len, x.width));
    tour_show_trace(t, "mixed", MHA_STEP_MIXED);

    tour_say(t, "Output", "mha_variant_forward, mha_variant_parameter_count, mha_trace_flops",
             "One output projection follows, as in plain attention. The layer has more parameters than plain "
             "attention, since every expert has its own projections, but only the selected experts are computed.");
    tour_show_output(t, &x, plain,
                     tour_format(t, "%s of %s", tour_count_word(t, active(&x)), tour_many(t, x.heads, "expert")));
    show_slots(t, &x, plain, tour_counted(t, "with projections"));
}

/* ---- pruned heads ---- */

void tour_head_pruning(tour *t)
{
    tour_inputs x = {.batch = 3, .q_len = 4, .kv_len = 4, .width = 8, .heads = 4};
    tour_count plain = {0};
    TOUR_TRY(tour_count_plain(t, &x, &plain));
    const int64_t kept = x.heads / 2;
    const mha_head_pruning_options options = {
        .size = sizeof options, .d_model = x.width, .num_heads = x.heads, .prune_ratio = 0.5};
    TOUR_TRY(mha_head_pruning_create(t->ctx, &options, tour_layer(t), &t->error));
    TOUR_TRY(tour_inputs_run(t, 31, &x, true));

    tour_say(t, "A score for each head",
             tour_format(t, "mha_head_pruning_create (.num_heads = %lld, .prune_ratio = 0.5)", (long long)x.heads),
             "A linear layer maps the mean of a sequence's queries to a score for each of the %s: "
             "%s.",
             tour_many(t, x.heads, "head"), TOUR_DIMS(t, x.batch, x.heads));
    tour_show_trace(t, "logits", MHA_STEP_LOGITS);

    tour_say(t, "Heads with the highest scores", "mha_trace_chosen",
             "int(%lld * (1 - 0.5)) = %lld heads are kept for each sequence, the highest score first; different "
             "sequences may keep different heads.",
             (long long)x.heads, (long long)kept);
    show_chosen(t, "chosen", x.batch);

    tour_say(t, "Weights of the kept heads", "mha_variant_forward (.want_weights = 1), MHA_STEP_WEIGHTS",
             "The axes are [sequence, kept head, query, key]. The published code computes all heads and multiplies %s "
             "of them by 0. Here, the %s removed heads are neither projected nor computed.",
             tour_count_word(t, x.heads - kept), tour_count_word(t, x.heads - kept));
    tour_show_trace(t, "weights", MHA_STEP_WEIGHTS);

    tour_say(t, "Output", "mha_variant_forward, mha_variant_parameter_count, mha_trace_flops",
             "The columns of removed heads are treated as 0, so the output is the sum over the kept heads plus the "
             "bias: %s. The predictor adds a few parameters; the flops are about half of the flops of "
             "plain attention.",
             TOUR_DIMS(t, x.batch, x.q_len, x.width));
    tour_show_output(t, &x, plain, tour_format(t, "%s of %s", tour_count_word(t, kept), tour_many(t, x.heads, "head")));
}

/* ---- number of heads per sequence ---- */

enum { HEADS_MAX = 16 };

static void show_counts(tour *t, const tour_inputs *x)
{
    float heads[4];
    const long long w = (long long)x->width;
    for (int64_t b = 0; b < x->batch; b++)
        heads[b] = (float)mha_trace_heads(t->trace, b);
    tour_say(t, "Predictor logits", "mha_adaptive_heads_create (.head_options = {4, 8, 16})",
             "A small network (linear %lld to 128, ReLU, linear 128 to 3) maps the mean of a sequence's "
             "queries to a logit for each option, 4, 8 or 16 heads: [4, 3] for four sequences.",
             w);
    tour_show_trace(t, "logits", MHA_STEP_LOGITS);

    tour_say(t, "Number of heads per sequence", "mha_trace_chosen, mha_trace_heads",
             "The option with the largest logit of each row is chosen. The %s columns are then split "
             "into that many heads: 4 heads of width %lld, 8 of width %lld, or 16 of width %lld. The weight matrices "
             "are the same in all three cases.",
             w == HEADS_MAX ? "sixteen" : tour_count_word(t, w), w / 4, w / 8, w / 16);
    show_chosen(t, "chosen", x->batch);
    tour_show(t, "heads", heads, TOUR_SHAPE(4))->look = TOUR_WHOLE;
}

void tour_adaptive_heads(tour *t)
{
    tour_inputs x = {.batch = 4, .q_len = 4, .kv_len = 4, .width = HEADS_MAX, .heads = 4};
    tour_count plain = {0};
    const int64_t choices[] = {4, 8, HEADS_MAX};
    if (tour_check_heads(t, tour_width(t, x.width), HEADS_MAX) != MHA_OK) return;
    TOUR_TRY(tour_count_plain(t, &x, &plain));
    const mha_adaptive_heads_options options = {
        .size = sizeof options, .d_model = x.width, .head_options = choices, .head_option_count = 3};
    TOUR_TRY(mha_adaptive_heads_create(t->ctx, &options, tour_layer(t), &t->error));
    TOUR_TRY(tour_inputs_run(t, 9, &x, true));
    show_counts(t, &x);

    tour_say(t, "Output", "mha_variant_forward, mha_variant_parameter_count, mha_trace_flops",
             "The output is %s. The matrix products have the same cost for every split. The predictor adds a "
             "cost, which at this small width is larger than the cost of the layer itself.",
             TOUR_DIMS(t, x.batch, x.q_len, x.width));
    tour_show_output(t, &x, plain, "4, 8 or 16 heads");
}
