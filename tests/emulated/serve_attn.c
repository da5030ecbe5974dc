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

static void call(mha_ctx *ctx, const mha_attn_desc *desc)
{
    wire_array in[WIRE_ARRAYS], out[3];
    void *data[WIRE_ARRAYS], *result[3];
    wire_inputs(desc, in);
    wire_outputs(desc, out);
    for (int n = 0; n < WIRE_ARRAYS; n++) {
        data[n] = array_of(&in[n]);
        if (fread(data[n], in[n].size, wire_count(&in[n]), stdin) != wire_count(&in[n])) exit(1);
    }
    for (int n = 0; n < 3; n++)
        result[n] = array_of(&out[n]);
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
        (request.what == WIRE_PLAN ? plan : call)(ctx, &request.desc);
        fflush(stdout);
    }
    mha_ctx_free(ctx);
    return 0;
}
