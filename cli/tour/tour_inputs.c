/* tour_inputs.c - samples queries, keys and values, and runs the current layer on them. */
#include "tour/tour_inputs.h"

#include "tour/tour_choice.h"

mha_status tour_inputs_begin(tour *t, tour_inputs *x)
{
    x->width = tour_width(t, x->width), x->heads = tour_heads(t, x->heads);
    if (tour_check_heads(t, x->width, x->heads) != MHA_OK) return t->error.status;
    x->query = tour_floats(t, x->batch * x->q_len * x->width);
    x->key = tour_floats(t, x->batch * x->kv_len * x->width);
    x->value = tour_floats(t, x->batch * x->kv_len * x->width);
    x->output = tour_floats(t, x->batch * x->q_len * x->width);
    return t->error.status;
}

int64_t tour_inputs_head_dim(const tour_inputs *x)
{
    return x->width / x->heads;
}

mha_status tour_inputs_run(tour *t, uint64_t seed, tour_inputs *x, bool load)
{
    mha_rng rng;
    const mha_variant_input in = {.size = sizeof in,
                                  .batch = x->batch,
                                  .q_len = x->q_len,
                                  .kv_len = x->kv_len,
                                  .query = x->query,
                                  .key = x->key,
                                  .value = x->value,
                                  .keep = x->keep,
                                  .want_weights = 1};
    const int64_t queries = x->batch * x->q_len * x->width, keys = x->batch * x->kv_len * x->width;
    mha_rng_manual_seed(&rng, tour_seed(t, seed));
    mha_status status = mha_variant_init(t->layer, &rng, &t->error);
    if (status == MHA_OK) status = mha_rng_randn(&rng, x->query, queries, &t->error);
    if (status == MHA_OK) status = mha_rng_randn(&rng, x->key, keys, &t->error);
    if (status == MHA_OK) status = mha_rng_randn(&rng, x->value, keys, &t->error);
    if (status == MHA_OK && load) status = tour_load_layer(t);
    if (status == MHA_OK) status = mha_variant_forward(t->layer, &in, x->output, t->trace, &t->error);
    return status;
}

mha_status tour_plain_layer(tour *t, int64_t width, int64_t heads)
{
    const mha_standard_mha_options options = {.size = sizeof options, .d_model = width, .num_heads = heads};
    return mha_standard_mha_create(t->ctx, &options, tour_layer(t), &t->error);
}

mha_status tour_count_plain(tour *t, tour_inputs *x, tour_count *count)
{
    mha_status status = tour_inputs_begin(t, x);
    if (status == MHA_OK) status = tour_plain_layer(t, x->width, x->heads);
    if (status == MHA_OK) status = tour_inputs_run(t, 0, x, false);
    if (status == MHA_OK) *count = tour_counted(t, "plain");
    return status;
}

void tour_show_output(tour *t, const tour_inputs *x, tour_count plain, const char *name)
{
    tour_show(t, "output", x->output, TOUR_SHAPE(x->batch, x->q_len, x->width));
    tour_count_given(t, plain);
    tour_count_layer(t, name);
}
