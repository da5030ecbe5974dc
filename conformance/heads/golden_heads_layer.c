/* golden_heads_layer.c - compares single attention layers: computes maps, contexts, and gradients of contexts and gates
 * from x, the output gradient and the layer's weights. */
#include "conformance/heads/golden_heads.h"
#include "output.h"
#include <stdlib.h>
#include <string.h>

typedef struct one_layer {
    heads_file *f;
    int64_t number, rows;
    const float *x, *dout;
    mha_variant *layer;
    mha_trace *trace;
    const float *out_weight; /* [E, E] weight of the output projection */
    mha_error failed;
} one_layer;

static const double *want(one_layer *l, const char *kind, int rank, int64_t *shape, char *name)
{
    snprintf(name, 60, "%s_layer%lld", kind, (long long)l->number);
    return heads_want(l->f, name, rank, shape);
}

static const float *input(one_layer *l, const char *kind)
{
    char name[60];
    int64_t shape[2] = {l->rows, l->f->run->info->hidden};
    const double *wide = want(l, kind, 2, shape, name);
    float *narrow = wide ? heads_room(l->f, shape[0] * shape[1], sizeof *narrow) : NULL;
    if (!wide) verify_fault(&l->f->entry, "missing tensor \"%s\"", name);
    for (int64_t n = 0; narrow && n < shape[0] * shape[1]; n++)
        narrow[n] = (float)wide[n];
    l->rows = shape[0];
    return narrow;
}

/* ---- weights ---- */

/* Returns the checkpoint tensor whose name ends with `end`. */
static const mha_tensor *ending(const mha_file *file, const char *end)
{
    for (int64_t n = 0; n < mha_file_count(file); n++) {
        const mha_tensor *t = mha_file_tensor(file, n);
        const size_t length = strlen(t->name);
        if (length >= strlen(end) && strcmp(t->name + length - strlen(end), end) == 0) return t;
    }
    return NULL;
}

/* Loads the layer's parameters from a BERT checkpoint. */
static mha_status load(one_layer *l, const mha_file *file)
{
    static const char *const names[][2] = {{"q_proj", "attention.self.query"},
                                           {"k_proj", "attention.self.key"},
                                           {"v_proj", "attention.self.value"},
                                           {"o_proj", "attention.output.dense"}};
    int64_t count;
    char end[100];
    const mha_named_tensor *list = mha_variant_parameters(l->layer, &count);
    for (int64_t n = 0; n < count; n++) {
        size_t which = 0;
        while (which < 3 && strncmp(names[which][0], list[n].name, 6) != 0)
            which++;
        snprintf(end, sizeof end, ".%lld.%s%s", (long long)l->number, names[which][1], list[n].name + 6);
        const mha_tensor *t = ending(file, end);
        const int64_t size = list[n].shape[0] * (list[n].rank == 2 ? list[n].shape[1] : 1);
        if (!t || t->elements != size)
            return verify_fault(&l->f->entry, "the model must have a tensor \"%s\" of the layer's size", end);
        if (mha_tensor_read(t, MHA_F32, list[n].data, &l->failed) != MHA_OK) return l->failed.status;
        if (which == 3 && list[n].rank == 2) l->out_weight = list[n].data;
    }
    return mha_variant_update(l->layer, &l->failed);
}

static mha_status make(one_layer *l)
{
    mha_ctx *ctx = l->f->run->session->ctx;
    const mha_model_info *m = l->f->run->info;
    const mha_standard_mha_options o = {.size = sizeof o, .d_model = m->hidden, .num_heads = m->heads};
    mha_file *file = NULL;
    if (mha_standard_mha_create(ctx, &o, &l->layer, &l->failed) == MHA_OK &&
        mha_variant_init(l->layer, NULL, &l->failed) == MHA_OK &&
        mha_trace_create(ctx, &l->trace, &l->failed) == MHA_OK &&
        mha_checkpoint_open(ctx, l->f->run->session->model, NULL, &file, &l->failed) == MHA_OK)
        load(l, file);
    mha_file_free(file);
    return l->failed.status;
}

/* ---- forward and backward pass ---- */

static mha_status run(one_layer *l)
{
    const int64_t E = l->f->run->info->hidden;
    float *y = heads_room(l->f, l->rows * E, sizeof *y);
    const mha_variant_input in = {.size = sizeof in, .batch = 1, .q_len = l->rows, .query = l->x, .want_weights = 1};
    const mha_variant_gradient g = {.size = sizeof g, .output = l->dout};
    if (!y || mha_variant_forward(l->layer, &in, y, l->trace, &l->failed) != MHA_OK) return l->failed.status;
    return mha_variant_backward(l->layer, &in, l->trace, &g, &l->failed);
}

/* Returns a contiguous step of the trace, widened to double. */
static double *step(one_layer *l, mha_step which, int64_t count)
{
    mha_step_view v;
    double *out = heads_room(l->f, count, sizeof *out);
    if (!out || l->failed.status != MHA_OK || !mha_trace_step(l->trace, which, &v)) return out;
    for (int64_t n = 0; n < count; n++)
        out[n] = (double)((const float *)v.data)[n];
    return out;
}

static void check_step(one_layer *l, const char *kind, mha_step which, int rank, int64_t *shape)
{
    char name[60];
    int64_t count = 1;
    for (int n = 0; n < rank; n++)
        count *= shape[n];
    const double *record = want(l, kind, rank, shape, name);
    heads_case(l->f, "layer", name, record, step(l, which, count), count, HEADS_NEAR, &l->failed);
}

/* Computes dL/dcontext = dout Wo. */
static void check_context_gradient(one_layer *l)
{
    char name[60];
    const int64_t E = l->f->run->info->hidden, count = l->rows * E;
    const double *record = want(l, "dctx", 2, (int64_t[]){l->rows, E}, name);
    float *dx = heads_room(l->f, count, sizeof *dx);
    double *got = heads_room(l->f, count, sizeof *got);
    const mha_linear_gradient g = {.size = sizeof g,
                                   .rows = l->rows,
                                   .in = E,
                                   .matrix = {.weight = l->out_weight, .out = E},
                                   .dy = l->dout,
                                   .dx = dx};
    if (dx && l->failed.status == MHA_OK) mha_linear_backward(l->f->run->session->ctx, &g, &l->failed);
    for (int64_t n = 0; got && n < count; n++)
        got[n] = (double)dx[n];
    heads_case(l->f, "layer", name, record, got, count, HEADS_NEAR, &l->failed);
}

/* Computes dL/dgate_h = <Wo_h, dL/dWo_h> of head h, one of four equivalent formulas. */
static void check_gates(one_layer *l)
{
    char name[60];
    int64_t count = 0;
    const int64_t E = l->f->run->info->hidden, H = l->f->run->info->heads;
    const double *record = want(l, "gate_grad", 1, (int64_t[]){H}, name);
    double *got = heads_room(l->f, H, sizeof *got);
    const mha_named_tensor *list = l->failed.status == MHA_OK ? mha_variant_gradients(l->layer, &count) : NULL;
    for (int64_t n = 0; got && n < count; n++)
        for (int64_t i = 0; strcmp(list[n].name, "o_proj.weight") == 0 && i < E * E; i++)
            got[i % E / (E / H)] += (double)((const float *)list[n].data)[i] * (double)l->out_weight[i];
    heads_case(l->f, "layer", name, record, got, H, HEADS_NEAR, &l->failed);
}

static void check_layer(heads_file *f, int64_t number)
{
    const mha_model_info *m = f->run->info;
    one_layer l = {.f = f, .number = number, .rows = -1};
    l.x = input(&l, "x");
    l.dout = heads_ok(f) ? input(&l, "dout") : NULL;
    if (!l.x || !l.dout || number >= m->layers) {
        verify_fault(&f->entry, "the model must have a layer %lld", (long long)number);
        return;
    }
    if (make(&l) == MHA_OK && heads_ok(f)) run(&l);
    check_step(&l, "ctx", MHA_STEP_CONTEXT, 2, (int64_t[]){l.rows, m->hidden});
    check_step(&l, "attention", MHA_STEP_WEIGHTS, 3, (int64_t[]){m->heads, l.rows, l.rows});
    check_context_gradient(&l);
    check_gates(&l);
    mha_trace_free(l.trace);
    mha_variant_free(l.layer);
}

void heads_layers(heads_run *run)
{
    heads_file f;
    const char *name;
    json_t *value;
    if (heads_open(&f, run, "layer-backward.safetensors")) json_object_foreach((json_t *)f.entry.object, name, value)
        {
            char *end;
            const long long number = strncmp(name, "x_layer", 7) == 0 ? strtoll(name + 7, &end, 10) : -1;
            if (number >= 0 && !*end) check_layer(&f, number);
        }
    heads_close(&f);
}
