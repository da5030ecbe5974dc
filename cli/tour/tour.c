/* tour.c - creates a tour: runs its function and stores the steps. */
#include "tour/tour.h"

#include "model_name.h"
#include "output.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

tour *tour_make(mha_ctx *ctx, const tour_entry *entry, const char *model, const tour_choice *choice)
{
    tour *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->name = entry->name;
    t->summary = entry->summary;
    t->example = entry->example;
    t->model = model;
    t->model_name = model ? cli_last_component(model) : NULL;
    t->choice = *choice;
    t->ctx = ctx;
    if (mha_trace_create(ctx, &t->trace, &t->error) == MHA_OK) entry->walk(t);
    return t;
}

void tour_free(tour *t)
{
    if (!t) return;
    for (int s = 0; s < t->step_count; s++) {
        free(t->steps[s].text);
        for (int n = 0; n < t->steps[s].tensors_used; n++) {
            free(t->steps[s].tensors[n].values);
            free(t->steps[s].tensors[n].words);
        }
    }
    for (tour_block *block = t->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    mha_variant_free(t->layer);
    mha_trace_free(t->trace);
    free(t);
}

/* ---- steps ---- */

void tour_fail(tour *t, mha_status status, const char *format, ...)
{
    char what[sizeof t->error.message / 2];
    if (t->error.status != MHA_OK) return;
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    t->error.status = status;
    snprintf(t->error.message, sizeof t->error.message, "tour %s: %s", t->name, cli_shown(what));
}

void tour_say(tour *t, const char *title, const char *call, const char *format, ...)
{
    if (t->error.status != MHA_OK) return;
    if (t->step_count == TOUR_STEPS) {
        tour_fail(t, MHA_ERR_ARG, "tour_say: a tour must have at most %d steps", TOUR_STEPS);
        return;
    }
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int length = vsnprintf(NULL, 0, format, args);
    char *text = malloc((size_t)length + 1);
    if (text) vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    va_end(args);
    if (!text)
        tour_fail(t, MHA_ERR_MEMORY, "out of memory for the text of a step");
    else
        t->steps[t->step_count++] = (tour_step){.title = title, .call = call, .text = text};
}

static tour_step *last(tour *t)
{
    return &t->steps[t->step_count - 1];
}

/* ---- tensors ---- */

/* Adds a tensor to the last step and allocates its elements. After a failure, returns t->nowhere, without elements. */
static tour_tensor *add(tour *t, const char *name, int rank, const int64_t *shape)
{
    tour_tensor tensor = {.name = name, .rank = rank, .count = 1};
    t->nowhere = (tour_tensor){0};
    for (int n = 0; n < rank; n++)
        tensor.count *= tensor.shape[n] = shape[n];
    if (t->error.status != MHA_OK) return &t->nowhere;
    if (t->step_count == 0 || last(t)->tensors_used == TOUR_TENSORS) {
        tour_fail(t, MHA_ERR_ARG, "a tensor must follow tour_say, and a step must have at most %d tensors",
                  TOUR_TENSORS);
        return &t->nowhere;
    }
    tensor.values = malloc((size_t)tensor.count * sizeof *tensor.values);
    if (!tensor.values) {
        tour_fail(t, MHA_ERR_MEMORY, "out of memory for a tensor");
        return &t->nowhere;
    }
    tour_step *step = last(t);
    step->tensors[step->tensors_used] = tensor;
    return &step->tensors[step->tensors_used++];
}

tour_tensor *tour_show(tour *t, const char *name, const float *values, int rank, const int64_t *shape)
{
    tour_tensor *tensor = add(t, name, rank, shape);
    if (tensor->values) memcpy(tensor->values, values, (size_t)tensor->count * sizeof *values);
    return tensor;
}

tour_tensor *tour_show_weights(tour *t, const char *name, const float *values, int rank, const int64_t *shape)
{
    tour_tensor *tensor = tour_show(t, name, values, rank, shape);
    tensor->look = TOUR_WEIGHTS;
    return tensor;
}

/* Stores the copy in one block of memory: first the pointers, then the strings. */
void tour_name_words(tour *t, tour_tensor *tensor, const char *const *words)
{
    if (!tensor->values || tensor->words) return;
    const size_t count = (size_t)tensor->shape[tensor->rank - 1];
    size_t bytes = 0;
    for (size_t n = 0; n < count; n++)
        bytes += strlen(words[n]) + 1;
    tensor->words = malloc(count * sizeof *tensor->words + bytes);
    if (!tensor->words) {
        tour_fail(t, MHA_ERR_MEMORY, "out of memory for the labels of a tensor");
        return;
    }
    tensor->word_count = (int64_t)count;
    char *at = (char *)(tensor->words + count);
    for (size_t n = 0; n < count; n++) {
        tensor->words[n] = at;
        at = stpcpy(at, words[n]) + 1;
    }
}

void tour_color_heads(tour_tensor *tensor, int64_t heads, int64_t head_step)
{
    tensor->look = TOUR_HEADS;
    tensor->heads = heads;
    tensor->head_step = head_step;
}

void tour_show_number(tour *t, const char *name, double value)
{
    const float number = (float)value;
    tour_show(t, name, &number, 0, NULL)->look = TOUR_ROWS;
}

tour_tensor *tour_show_trace(tour *t, const char *name, mha_step step)
{
    mha_step_view view;
    if (t->error.status == MHA_OK && !mha_trace_step(t->trace, step, &view))
        tour_fail(t, MHA_ERR_ARG, "tour_show_trace: step must be in the trace of the layer (got %d)", (int)step);
    if (t->error.status != MHA_OK) return &t->nowhere;
    tour_tensor *tensor = add(t, name, view.rank, view.shape);
    tensor->look = step == MHA_STEP_WEIGHTS || step == MHA_STEP_GATES ? TOUR_WEIGHTS : TOUR_NUMBERS;
    for (int64_t n = 0; tensor->values && n < tensor->count; n++) {
        int64_t at = 0, rest = n;
        for (int axis = view.rank - 1; axis >= 0; axis--) {
            at += rest % view.shape[axis] * view.stride[axis];
            rest /= view.shape[axis];
        }
        tensor->values[n] = ((const float *)view.data)[at];
    }
    return tensor;
}

void tour_show_qkv(tour *t)
{
    tour_show_trace(t, "q", MHA_STEP_Q);
    tour_show_trace(t, "k", MHA_STEP_K);
    tour_show_trace(t, "v", MHA_STEP_V);
}

/* ---- layers ---- */

void tour_show_parameter(tour *t, const char *name)
{
    int64_t count = 0;
    const mha_named_tensor *list = t->layer ? mha_variant_parameters(t->layer, &count) : NULL;
    for (int64_t n = 0; n < count; n++)
        if (strcmp(list[n].name, name) == 0) {
            tour_show(t, name, list[n].data, list[n].rank, list[n].shape);
            return;
        }
    tour_fail(t, MHA_ERR_ARG, "tour_show_parameter: name must be a parameter of the layer (got \"%s\")", name);
}

mha_variant **tour_layer(tour *t)
{
    mha_variant_free(t->layer);
    t->layer = NULL;
    return &t->layer;
}

void tour_count_given(tour *t, tour_count count)
{
    if (t->error.status != MHA_OK) return;
    tour_step *step = last(t);
    if (step->counts_used == TOUR_COUNTS)
        tour_fail(t, MHA_ERR_ARG, "tour_count_given: a step must have at most %d counts", TOUR_COUNTS);
    else
        step->counts[step->counts_used++] = count;
}

tour_count tour_counted(const tour *t, const char *name)
{
    return (tour_count){name, mha_variant_parameter_count(t->layer), mha_trace_flops(t->trace)};
}

void tour_count_layer(tour *t, const char *name)
{
    if (t->error.status == MHA_OK) tour_count_given(t, tour_counted(t, name));
}

mha_status tour_multiply(tour *t, const mha_matrix *matrix, int64_t in, const float *x, int64_t rows, float *y)
{
    mha_linear *linear = NULL;
    mha_status status = mha_linear_create_stack(t->ctx, in, matrix, 1, MHA_ACT_NONE, &linear, &t->error);
    if (status == MHA_OK) status = mha_linear_forward(linear, x, rows, y, &t->error);
    mha_linear_free(linear);
    return status;
}
