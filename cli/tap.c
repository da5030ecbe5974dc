/* tap.c - a forward pass whose insides are copied as they come by. */
#include "tap.h"

#include <stdlib.h>
#include <string.h>

#include "output.h"

/* Adds a tensor of `rank` extents, a copy of `data`, called PREFIX or PREFIX.N. */
static int add(tap *t, const char *prefix, int64_t n, int rank, const int64_t *shape, const float *data)
{
    size_t elements = 1;
    for (int i = 0; i < rank; i++)
        elements *= (size_t)shape[i];
    float *copy = malloc(elements * sizeof *copy);
    t->out_of_memory |= !copy;
    if (!copy) return 1;
    memcpy(copy, data, elements * sizeof *copy);
    char *name = t->names[t->count];
    snprintf(name, sizeof *t->names, "%s.%lld", prefix, (long long)n);
    mha_named_tensor *tensor = &t->list[t->count++];
    *tensor = (mha_named_tensor){.name = name, .dtype = MHA_F32, .rank = rank, .data = copy};
    memcpy(tensor->shape, shape, (size_t)rank * sizeof *shape);
    return 0;
}

static int on_hidden(void *user, int64_t entry, const float *x)
{
    tap *t = user;
    return add(t, "hidden", entry, 2, (int64_t[]){t->length, t->hidden}, x);
}

static int on_attention(void *user, int64_t layer, int64_t heads, const float *probs)
{
    tap *t = user;
    return add(t, "attn", layer, 3, (int64_t[]){heads, t->length, t->length}, probs);
}

static int no_memory(const cli_session *s, const tap *t)
{
    return cli_error(s, CLI_FAILED, "out of memory for what %lld tokens make", (long long)t->length);
}

/* Room for the list and the logits. */
static bool allocate(tap *t, const mha_model_info *info)
{
    const size_t most = 2 * (size_t)info->layers + 2;
    t->list = calloc(most, sizeof *t->list);
    t->names = calloc(most, sizeof *t->names);
    if (info->logits) t->logits = calloc((size_t)t->rows, (size_t)info->vocab * sizeof *t->logits);
    return t->list && t->names && (t->logits || !info->logits);
}

int tap_run(cli_session *s, const mha_model *model, const int32_t *ids, int64_t length, unsigned keep, tap *t)
{
    const mha_model_info *info = mha_model_describe(model);
    const bool all = keep & TAP_ALL_LOGITS;
    *t = (tap){.length = length, .vocab = info->vocab, .rows = all ? length : 1, .hidden = info->hidden};
    if (!info->logits && !(keep & (TAP_HIDDEN | TAP_ATTENTIONS)))
        return cli_error(s, CLI_REFUSED, "%s has no logits: --hidden and --attn have the rest",
                         cli_shown(s->model_name));
    if (!info->logits) cli_say(s, "%s has no logits; the rest is written", cli_shown(s->model_name));
    if (!allocate(t, info)) return no_memory(s, t);
    mha_error error = {0};
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = length, .ids = ids};
    const mha_model_output output = {.size = sizeof output,
                                     .logits = all ? t->logits : NULL,
                                     .last_logits = all ? NULL : t->logits,
                                     .on_hidden = keep & TAP_HIDDEN ? on_hidden : NULL,
                                     .on_attention = keep & TAP_ATTENTIONS ? on_attention : NULL,
                                     .user = t};
    const mha_status status = mha_model_forward(model, &input, &output, &error);
    if (t->out_of_memory) return no_memory(s, t);
    if (status != MHA_OK) return cli_refuse(s, &error);
    if (t->logits && all)
        t->list[t->count++] = (mha_named_tensor){
            .name = "logits", .dtype = MHA_F32, .rank = 2, .shape = {length, t->vocab}, .data = t->logits};
    return CLI_DONE;
}

void tap_free(tap *t)
{
    for (int64_t i = 0; i < t->count; i++)
        if (t->list[i].data != t->logits) free(t->list[i].data);
    free(t->logits);
    free(t->list);
    free(t->names);
}
