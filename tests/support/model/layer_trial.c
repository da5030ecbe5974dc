/* layer_trial.c - implements layer_trial.h. */
#include "support/model/layer_trial.h"

#include "support/check.h"
#include <stdlib.h>
#include <string.h>

mha_error trial_error;

void trial_draw(mha_rng *rng, double *x, int64_t n)
{
    assert_int_equal(mha_rng_randn_f64(rng, x, n, &trial_error), MHA_OK);
}

trial *trial_make(const char *name, mha_status status, mha_variant *layer, int64_t d_in, int64_t d_out, bool cross)
{
    mha_rng rng;
    trial *p = calloc(1, sizeof *p);
    if (status != MHA_OK) fail_msg("%s: %s", name, trial_error.message);
    *p = (trial){.name = name, .layer = layer, .d_in = d_in, .d_out = d_out, .step = 1e-5, .limit = 2e-8};
    p->in = (mha_variant_input){.size = sizeof p->in, .batch = B, .q_len = LQ, .query = p->query};
    mha_rng_manual_seed(&rng, 7);
    assert_int_equal(mha_variant_init(layer, &rng, &trial_error), MHA_OK);
    trial_draw(&rng, p->query, B * LQ * d_in);
    trial_draw(&rng, p->key, B * LK * d_in);
    trial_draw(&rng, p->value, B * LK * d_in);
    trial_draw(&rng, p->weight, B * LQ * d_out);
    if (cross) {
        p->in.key = p->key;
        p->in.value = p->value;
        p->in.kv_len = LK;
    }
    assert_int_equal(mha_trace_create(NULL, &p->trace, &trial_error), MHA_OK);
    return p;
}

void trial_drop(trial *p)
{
    mha_trace_free(p->trace);
    mha_variant_free(p->layer);
    free(p);
}

void trial_soft_gates(trial *p)
{
    p->step = 1e-2;
    p->limit = 3e-4;
}

double trial_loss(trial *p)
{
    double sum = 0;
    if (mha_variant_forward(p->layer, &p->in, p->output, p->trace, &trial_error) != MHA_OK)
        fail_msg("%s: %s", p->name, trial_error.message);
    for (int64_t n = 0; n < B * p->in.q_len * p->d_out; n++)
        sum += p->output[n] * p->weight[n];
    return sum;
}

int64_t trial_elements(const mha_named_tensor *t)
{
    int64_t count = 1;
    for (int n = 0; n < t->rank; n++)
        count *= t->shape[n];
    return count;
}

const double *trial_gradient(const trial *p, const char *name, int64_t *count)
{
    int64_t n;
    const mha_named_tensor *list = mha_variant_gradients(p->layer, &n);
    *count = 0;
    while (n-- > 0)
        if (strcmp(list[n].name, name) == 0) return *count = trial_elements(&list[n]), list[n].data;
    fail_msg("the layer must have a parameter %s", name);
    return NULL;
}
