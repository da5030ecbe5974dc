/* serve_attn.c - runs the operator of this CPU for a program on another one; see wire.h. Requests come on stdin,
 * replies go to stdout, the ISA in use goes to stderr once. */
#include "wire.h"
#include <stdlib.h>
#include <string.h>

static void *room(const wire_array *a)
{
    void *memory = calloc(wire_count(a) + 1, a->size);
    if (!memory) abort();
    return memory;
}

static void *receive(const wire_array *a)
{
    void *memory = room(a);
    if (fread(memory, a->size, wire_count(a), stdin) != wire_count(a)) exit(1);
    return memory;
}

static void reply(const mha_error *error)
{
    fwrite(error, sizeof *error, 1, stdout);
}

/* A mask says its strides, all others may. */
static mha_cview view_of(const void *data, const wire_array *a)
{
    return (mha_cview){data, {a->dim[1] * a->dim[2] * a->dim[3], a->dim[2] * a->dim[3], a->dim[3], 1}};
}

static void give(mha_attn_args *args, const wire_field *field, const wire_array *a, void *data)
{
    char *at = (char *)args + field->offset;
    const mha_cview view = view_of(data, a);
    if (field->kind == WIRE_LIST)
        memcpy(at, &data, sizeof data);
    else
        memcpy(at, &view, sizeof view);
}

static mha_attn_args read_inputs(const wire_request *request, void *data[WIRE_INPUTS])
{
    wire_array in[WIRE_INPUTS];
    const mha_attn_desc full = wire_filled(&request->desc);
    mha_attn_args args = {.size = sizeof args, .dropout_seed = request->dropout_seed};
    wire_shape_inputs(&full, in);
    for (int n = 0; n < WIRE_INPUTS; n++) {
        data[n] = receive(&in[n]);
        give(&args, &wire_inputs[n], &in[n], data[n]);
    }
    return args;
}

static void call(mha_ctx *ctx, const wire_request *request)
{
    wire_array out[WIRE_OUTPUTS];
    void *data[WIRE_INPUTS], *result[WIRE_OUTPUTS];
    const mha_attn_desc full = wire_filled(&request->desc);
    mha_attn_args args = read_inputs(request, data);
    wire_shape_outputs(&full, out);
    for (int n = 0; n < WIRE_OUTPUTS; n++) {
        result[n] = receive(&out[n]);
        give(&args, &wire_outputs[n], &out[n], result[n]);
    }
    mha_error error = {0};
    mha_status status = mha_attention(ctx, &request->desc, &args, &error);
    reply(&error);
    for (int n = 0; n < WIRE_OUTPUTS; n++) {
        if (status == MHA_OK) fwrite(result[n], out[n].size, wire_count(&out[n]), stdout);
        free(result[n]);
    }
    for (int n = 0; n < WIRE_INPUTS; n++)
        free(data[n]);
}

/* One place on an axis that is summed over: a stride of 0 there. */
static mha_view summed(void *data, const wire_array *a)
{
    const mha_cview full = view_of(data, a);
    mha_view view = {data, {0}};
    for (int n = 0; n < 4; n++)
        view.stride[n] = a->dim[n] == 1 ? 0 : full.stride[n];
    return view;
}

static void backward(mha_ctx *ctx, const wire_request *request)
{
    wire_gradients g;
    void *data[WIRE_INPUTS], *read[4], *written[WIRE_GRADS];
    const mha_attn_args args = read_inputs(request, data);
    if (fread(&g, sizeof g, 1, stdin) != 1) exit(1);
    for (int n = 0; n < 4; n++)
        read[n] = receive(&g.read[n]);
    mha_attn_grads grads = {.size = sizeof grads, .dout = {read[0], {0}}, .out = {read[1], {0}}, .lse = {read[2], {0}}};
    mha_view *views[WIRE_GRADS] = {&grads.dq,      &grads.dk,     &grads.dv,     &grads.dbias,
                                   &grads.dslopes, &grads.dsinks, &grads.dgates, &grads.row_taylor};
    if (g.read[3].present) grads.dlse.data = read[3];
    for (int n = 0; n < WIRE_GRADS; n++) {
        written[n] = room(&g.written[n]);
        if (!g.written[n].present) continue;
        *views[n] = n < 3 || n == WIRE_GRADS - 1 ? (mha_view){written[n], {0}} : summed(written[n], &g.written[n]);
    }
    mha_error error = {0};
    const mha_status status = mha_attention_backward(ctx, &request->desc, &args, &grads, &error);
    reply(&error);
    for (int n = 0; n < WIRE_GRADS; n++) {
        if (status == MHA_OK) fwrite(written[n], g.written[n].size, wire_count(&g.written[n]), stdout);
        free(written[n]);
    }
    for (int n = 0; n < 4; n++)
        free(read[n]);
    for (int n = 0; n < WIRE_INPUTS; n++)
        free(data[n]);
}

static void plan(mha_ctx *ctx, const wire_request *request)
{
    mha_attn_plan *made;
    mha_error error = {0};
    mha_attn_plan_create(ctx, &request->desc, &made, &error);
    mha_attn_plan_free(made);
    reply(&error);
}

int main(void)
{
    wire_request request;
    mha_ctx *ctx;
    mha_error error = {0};
    if (mha_ctx_create(NULL, &ctx, &error) != MHA_OK) return fprintf(stderr, "%s\n", error.message), 1;
    fprintf(stderr, "the emulated CPU uses %s\n", mha_ctx_isa(ctx));
    while (fread(&request, sizeof request, 1, stdin) == 1) {
        (request.what == WIRE_PLAN ? plan : request.what == WIRE_CALL ? call : backward)(ctx, &request);
        fflush(stdout);
    }
    mha_ctx_free(ctx);
    return 0;
}
