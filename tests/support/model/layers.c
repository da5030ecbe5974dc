/* layers.c - creates and runs layers for tests. */
#include "support/model/layers.h"

#include "support/check.h"
#include <string.h>

mha_error err;
float query[LAYER_MAX], key[LAYER_MAX], value[LAYER_MAX], out[LAYER_MAX], other[LAYER_MAX];

int layer_inputs(void **state)
{
    (void)state;
    mha_rng rng;
    mha_rng_manual_seed(&rng, 5);
    return mha_rng_randn(&rng, query, LAYER_MAX, &err) != MHA_OK ||
           mha_rng_randn(&rng, key, LAYER_MAX, &err) != MHA_OK || mha_rng_randn(&rng, value, LAYER_MAX, &err) != MHA_OK;
}

mha_variant *layer_drawn(mha_status status, mha_variant **made)
{
    mha_rng rng;
    mha_rng_manual_seed(&rng, 11);
    if (status != MHA_OK || mha_variant_init(*made, &rng, &err) != MHA_OK) fail_msg("%s", err.message);
    return *made;
}

mha_trace *layer_trace(void)
{
    mha_trace *trace = NULL;
    assert_int_equal(mha_trace_create(NULL, &trace, &err), MHA_OK);
    return trace;
}

void layer_run(const mha_variant *layer, const mha_variant_input *in, float *y, mha_trace *trace)
{
    if (mha_variant_forward(layer, in, y, trace, &err) != MHA_OK) fail_msg("%s", err.message);
}

mha_variant_input layer_cross(void)
{
    return (mha_variant_input){.size = sizeof(mha_variant_input),
                               .batch = B,
                               .q_len = LQ,
                               .kv_len = LK,
                               .query = query,
                               .key = key,
                               .value = value};
}

const mha_named_tensor *layer_parameter(const mha_variant *layer, const char *name)
{
    int64_t count;
    const mha_named_tensor *list = mha_variant_parameters(layer, &count);
    while (count-- > 0)
        if (strcmp(list[count].name, name) == 0) return &list[count];
    fail_msg("the layer must have a parameter %s", name);
    return NULL;
}
