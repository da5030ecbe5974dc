/* forward_tensors.c - runs a forward pass and copies its intermediate tensors in the callbacks of the library. */
#include "logits/forward_tensors.h"

#include "output.h"
#include <stdlib.h>
#include <string.h>

enum { CAPTURED_STATISTICS = 5 };

/* Appends a tensor of `rank` dimensions with a copy of `data`; its name must be in t->names[t->count]. */
static int add(captured_tensors *t, mha_dtype dtype, int rank, const int64_t *shape, const void *data)
{
    size_t bytes = mha_dtype_size(dtype);
    for (int i = 0; i < rank; i++)
        bytes *= (size_t)shape[i];
    void *copy = malloc(bytes);
    t->out_of_memory |= !copy;
    if (!copy) return 1;
    memcpy(copy, data, bytes);
    mha_named_tensor *tensor = &t->list[t->count];
    *tensor = (mha_named_tensor){.name = t->names[t->count++], .dtype = dtype, .rank = rank, .data = copy};
    memcpy(tensor->shape, shape, (size_t)rank * sizeof *shape);
    return 0;
}

static char *name_of(captured_tensors *t, const char *prefix, int64_t n)
{
    snprintf(t->names[t->count], sizeof *t->names, "%s.%lld", prefix, (long long)n);
    return t->names[t->count];
}

static int on_hidden(void *user, int64_t entry, const float *x)
{
    captured_tensors *t = user;
    name_of(t, "hidden", entry);
    return add(t, MHA_F32, 2, (int64_t[]){t->length, t->hidden}, x);
}

static int on_attention(void *user, int64_t layer, int64_t heads, const float *probs)
{
    captured_tensors *t = user;
    const int64_t map[] = {heads, t->length, t->length};
    if (!t->heads) {
        name_of(t, "attn", layer);
        return add(t, MHA_F32, 3, map, probs);
    }
    for (int64_t n = 0; n < heads; n++) {
        char *name = name_of(t, "attn", layer);
        const size_t used = strlen(name);
        snprintf(name + used, sizeof *t->names - used, ".%lld",
                 (long long)mha_head_number(t->model, layer, t->heads++->head));
        if (add(t, MHA_F32, 2, map + 1, probs + n * t->length * t->length)) return 1;
    }
    return 0;
}

static int on_stats(void *user, const mha_model_stats *s)
{
    captured_tensors *t = user;
    const struct {
        const char *name;
        mha_dtype dtype;
        const void *data;
    } all[CAPTURED_STATISTICS] = {{"row_entropy", MHA_F32, s->row_entropy},
                                  {"row_max", MHA_F32, s->row_max},
                                  {"row_argmax", MHA_I64, s->row_argmax},
                                  {"row_distance", MHA_F32, s->row_distance},
                                  {"received", MHA_F32, s->received}};
    for (int n = 0; n < CAPTURED_STATISTICS; n++) {
        name_of(t, all[n].name, s->layer);
        if (add(t, all[n].dtype, 2, (int64_t[]){s->heads, t->length}, all[n].data)) return 1;
    }
    return 0;
}

static int no_memory(const cli_session *s, const captured_tensors *t)
{
    return cli_error(s, CLI_FAILED, "out of memory for the tensors of %lld tokens", (long long)t->length);
}

/* Allocates the list of tensors and the logits. */
static bool allocate(captured_tensors *t, const mha_model_info *info, const capture_request *request)
{
    const size_t max = (2 + CAPTURED_STATISTICS) * (size_t)info->layers + (size_t)request->head_count + 2;
    t->list = calloc(max, sizeof *t->list);
    t->names = calloc(max, sizeof *t->names);
    if (t->vocab) t->logits = calloc((size_t)t->rows, (size_t)t->vocab * sizeof *t->logits);
    return t->list && t->names && (t->logits || !t->vocab);
}

mha_status forward_pass(const cli_session *s, const mha_model *model, const int32_t *ids, int64_t length,
                        const capture_request *request, const mha_model_output *output, mha_error *error)
{
    const mha_model_input input = {.size = sizeof input,
                                   .batch = 1,
                                   .length = length,
                                   .ids = request->pixels ? NULL : ids,
                                   .source = request->source,
                                   .gates = request->gates,
                                   .fills = request->fills,
                                   .pixels = request->pixels};
    if (s->shared && !request->source) return s->shared->forward(s->shared->user, model, &input, output, error);
    if (request->edge_count)
        return mha_knockout_forward(model, &input, output, request->edges, request->edge_count, error);
    return mha_model_forward(model, &input, output, error);
}

/* Runs the pass, and adds the logits of all tokens to the list. */
static int run(const cli_session *s, const mha_model *model, const int32_t *ids, const capture_request *request,
               bool all, captured_tensors *t)
{
    mha_error error = {0};
    const mha_model_output output = {.size = sizeof output,
                                     .logits = all ? t->logits : NULL,
                                     .last_logits = all ? NULL : t->logits,
                                     .on_hidden = request->keep & CAPTURE_HIDDEN ? on_hidden : NULL,
                                     .on_attention = request->keep & CAPTURE_ATTENTIONS ? on_attention : NULL,
                                     .map_heads = request->heads,
                                     .map_count = request->head_count,
                                     .on_stats = request->keep & CAPTURE_STATS ? on_stats : NULL,
                                     .user = t};
    const mha_status status = forward_pass(s, model, ids, t->length, request, &output, &error);
    if (t->out_of_memory) return no_memory(s, t);
    if (status != MHA_OK) return cli_refuse(s, &error);
    if (t->logits && all)
        t->list[t->count++] = (mha_named_tensor){
            .name = "logits", .dtype = MHA_F32, .rank = 2, .shape = {t->rows, t->vocab}, .data = t->logits};
    return CLI_DONE;
}

int capture_tensors(cli_session *s, const mha_model *model, const int32_t *ids, int64_t length,
                    const capture_request *request, captured_tensors *t)
{
    const mha_model_info *info = mha_model_describe(model);
    const bool all = request->keep & CAPTURE_ALL_LOGITS || request->pixels || !info->logits;
    const bool others = request->keep & (CAPTURE_HIDDEN | CAPTURE_ATTENTIONS | CAPTURE_STATS);
    *t = (captured_tensors){.model = model,
                            .length = length,
                            .vocab = info->logit_width,
                            .rows = all && !request->pixels ? length : 1,
                            .hidden = info->hidden,
                            .heads = request->heads};
    if (!t->vocab && !others && request->views) return CLI_DONE;
    if (!t->vocab && !others)
        return cli_error(s, CLI_REFUSED, "%s has no logits: use --hidden, --attn or --stats", cli_shown(s->model_name));
    if (!t->vocab) cli_say(s, "%s has no logits; writing the other tensors", cli_shown(s->model_name));
    return allocate(t, info, request) ? run(s, model, ids, request, all, t) : no_memory(s, t);
}

void captured_tensors_free(captured_tensors *t)
{
    for (int64_t i = 0; i < t->count; i++)
        if (t->list[i].data != t->logits) free(t->list[i].data);
    free(t->logits);
    free(t->list);
    free(t->names);
}
