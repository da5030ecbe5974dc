/* nonfinite.c - finds the origin of a non-finite loss or gradient: the first layer with a non-finite output, and the
 * first tensor with a non-finite weight. It runs once, when training must stop. */
#include "base/error.h"
#include "base/struct_size.h"
#include "train/trainer_struct.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The search for the first non-finite hidden state. */
typedef struct search {
    const mha_model_input *input;
    int64_t rows, width;
    int64_t entry; /* index as in on_hidden; -1 = none found yet */
} search;

static bool all_finite(const float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

static int look(void *user, int64_t entry, const float *x)
{
    search *s = user;
    for (int64_t r = 0; r < s->rows && s->entry < 0; r++) {
        const bool real = s->input->starts || !s->input->mask || s->input->mask[r];
        if (real && !all_finite(x + r * s->width, s->width)) s->entry = entry;
    }
    return 0;
}

/* Writes the name of the first non-finite result of the forward pass to `place`: a hidden state or, if all hidden
 * states are finite, the logits. */
static mha_status find_place(const mha_trainer *t, const mha_model_input *given, char *place, size_t capacity,
                             mha_error *err)
{
    mha_model_input in;
    MHA__TRY(mha__options_need(&in, sizeof in, given, "mha_model_input", err));
    search s = {.input = &in,
                .rows = in.starts ? in.starts[in.batch] : in.batch * in.length,
                .width = t->model->config.hidden,
                .entry = -1};
    const mha_model_output output = {.size = sizeof output, .on_hidden = look, .user = &s};
    MHA__TRY(mha_model_forward(t->model, &in, &output, err));
    if (s.entry < 0)
        snprintf(place, capacity, t->o.teacher ? "the logits, or the teacher's output" : "the logits");
    else if (s.entry == 0)
        snprintf(place, capacity, "the embeddings");
    else
        snprintf(place, capacity, "the output of layer %lld", (long long)s.entry - 1);
    return MHA_OK;
}

/* Returns the name of the first tensor with a non-finite weight, or NULL. */
static const char *find_weight(const mha_trainer *t)
{
    for (int64_t n = 0; n < t->count; n++)
        if (!all_finite(t->list[n].data, t->parameter[n].count)) return t->list[n].name;
    return NULL;
}

mha_status mha__train_check_weights(const mha_trainer *t, mha_error *err)
{
    const char *name = find_weight(t);
    if (!name) return MHA_OK;
    return mha__fail(err, MHA_ERR_NOT_FINITE, "step %lld: elements of the tensor \"%s\" must be finite",
                     (long long)t->step, mha__quote(&(mha__quoted){0}, name, strlen(name)));
}

mha_status mha__train_bad_loss(const mha_trainer *t, const mha_train_batch *batch, int64_t number, double loss,
                               mha_error *err)
{
    char place[64];
    const char *name = find_weight(t);
    mha__quoted q = {0};
    MHA__TRY(find_place(t, batch->input, place, sizeof place, err));
    return mha__fail(err, MHA_ERR_NOT_FINITE,
                     "step %lld: the loss of batch %lld is %g; the first non-finite result is %s; %s%s%s",
                     (long long)t->step + 1, (long long)number + 1, isnan(loss) ? fabs(loss) : loss, place,
                     name ? "the first non-finite weight is in the tensor \"" : "all weights are finite",
                     name ? mha__quote(&q, name, strlen(name)) : "", name ? "\"" : "");
}

mha_status mha__train_bad_gradient(const mha_trainer *t, int64_t parameter, mha_error *err)
{
    const char *name = t->list[parameter].name;
    char layer[32] = "";
    if (t->parameter[parameter].layer >= 0)
        snprintf(layer, sizeof layer, " of layer %lld", (long long)t->parameter[parameter].layer);
    return mha__fail(err, MHA_ERR_NOT_FINITE, "step %lld: the gradient of the tensor \"%s\"%s must be finite",
                     (long long)t->step + 1, mha__quote(&(mha__quoted){0}, name, strlen(name)), layer);
}
