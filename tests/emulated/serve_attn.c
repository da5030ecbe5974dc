/* serve_attn.c - runs the operator of this CPU for a program on another one; see wire.h. Requests come on stdin,
 * replies go to stdout, the ISA in use goes to stderr once. */
#include "wire.h"
#include <stdlib.h>
#include <string.h>

static void *array_of(const wire_array *a)
{
    void *memory = calloc(wire_count(a) + 1, a->size);
    if (!memory) abort();
    return memory;
}

static void reply(const mha_error *error)
{
    fwrite(error, sizeof *error, 1, stdout);
}

/* Contiguous is all zero for q, k and v, but a mask says its strides. */
static mha_cview view_of(const void *data, const wire_array *a)
{
    return (mha_cview){data, {a->dim[1] * a->dim[2] * a->dim[3], a->dim[2] * a->dim[3], a->dim[3], 1}};
}

static void *read_array(const wire_array *a)
{
    void *data = array_of(a);
    if (fread(data, a->size, wire_count(a), stdin) != wire_count(a)) exit(1);
    return data;
}

static mha_attn_args read_inputs(const mha_attn_desc *desc, void *data[WIRE_ARRAYS])
{
    wire_array in[WIRE_ARRAYS];
    wire_inputs(desc, in);
    for (int n = 0; n < WIRE_ARRAYS; n++)
        data[n] = read_array(&in[n]);
    mha_attn_args args = {.size = sizeof args, .q_lens = data[5], .kv_lens = data[6], .offsets = data[7]};
    args.q.data = data[0];
    args.k.data = data[1];
    args.v.data = data[2];
    args.keep = view_of(data[3], &in[3]);
    args.bias = view_of(data[4], &in[4]);
    args.slopes = view_of(data[8], &in[8]);
    args.sinks = view_of(data[9], &in[9]);
    args.gates = view_of(data[10], &in[10]);
    args.head_list = data[13];
    args.cu_seqlens_q = data[14];
    args.cu_seqlens_k = data[15];
    args.prefix_lens = data[11];
    args.block_keep = view_of(data[12], &in[12]);
    return args;
}

static void call(mha_ctx *ctx, const mha_attn_desc *desc)
{
    wire_array out[3];
    void *data[WIRE_ARRAYS], *result[3];
    mha_attn_args args = read_inputs(desc, data);
    wire_outputs(desc, out);
    for (int n = 0; n < 3; n++)
        result[n] = array_of(&out[n]);
    args.out.data = result[0];
    args.lse.data = result[1];
    args.probs.data = result[2];
    mha_error error = {0};
    mha_status status = mha_attention(ctx, desc, &args, &error);
    reply(&error);
    for (int n = 0; n < 3; n++) {
        if (status == MHA_OK) fwrite(result[n], out[n].size, wire_count(&out[n]), stdout);
        free(result[n]);
    }
    for (int n = 0; n < WIRE_ARRAYS; n++)
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

static void backward(mha_ctx *ctx, const mha_attn_desc *desc)
{
    wire_gradients g;
    void *data[WIRE_ARRAYS], *read[4], *written[7];
    const mha_attn_args args = read_inputs(desc, data);
    if (fread(&g, sizeof g, 1, stdin) != 1) exit(1);
    for (int n = 0; n < 4; n++)
        read[n] = read_array(&g.read[n]);
    mha_attn_grads grads = {.size = sizeof grads, .dout = {read[0], {0}}, .out = {read[1], {0}}, .lse = {read[2], {0}}};
    mha_view *views[7] = {&grads.dq, &grads.dk, &grads.dv, &grads.dbias, &grads.dslopes, &grads.dsinks, &grads.dgates};
    if (g.read[3].present) grads.dlse.data = read[3];
    for (int n = 0; n < 7; n++) {
        written[n] = array_of(&g.written[n]);
        if (!g.written[n].present) continue;
        *views[n] = n < 3 ? (mha_view){written[n], {0}} : summed(written[n], &g.written[n]);
    }
    mha_error error = {0};
    const mha_status status = mha_attention_backward(ctx, desc, &args, &grads, &error);
    reply(&error);
    for (int n = 0; n < 7; n++) {
        if (status == MHA_OK) fwrite(written[n], g.written[n].size, wire_count(&g.written[n]), stdout);
        free(written[n]);
    }
    for (int n = 0; n < 4; n++)
        free(read[n]);
    for (int n = 0; n < WIRE_ARRAYS; n++)
        free(data[n]);
}

static void plan(mha_ctx *ctx, const mha_attn_desc *desc)
{
    mha_attn_plan *made;
    mha_error error = {0};
    mha_attn_plan_create(ctx, desc, &made, &error);
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
        (request.what == WIRE_PLAN ? plan : request.what == WIRE_CALL ? call : backward)(ctx, &request.desc);
        fflush(stdout);
    }
    mha_ctx_free(ctx);
    return 0;
}
