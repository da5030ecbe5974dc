/* remote_attn.c - the operator of mha/attn.h, done by another program: $MHA_REMOTE, which speaks wire.h on its stdin
 * and stdout. Linked before libmha, it makes every use of the operator run there, for instance on an emulated CPU. */
#include "wire.h"
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct mha_attn_plan {
    mha_attn_desc desc;
};

static FILE *to_remote, *from_remote;

static void connect_once(void)
{
    int ends[2];
    const char *command = getenv("MHA_REMOTE");
    if (to_remote) return;
    if (!command || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) abort();
    pid_t child = fork();
    if (child < 0) abort();
    if (child == 0) {
        dup2(ends[1], STDIN_FILENO);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    to_remote = fdopen(ends[0], "w");
    from_remote = fdopen(dup(ends[0]), "r");
    if (!to_remote || !from_remote) abort();
}

/* Reads exactly `count` elements; a remote that has died ends this program, too. */
static void receive(void *data, size_t size, size_t count)
{
    if (fread(data, size, count, from_remote) == count) return;
    fputs("the remote operator has ended\n", stderr);
    abort();
}

static mha_status receive_status(mha_error *err)
{
    mha_error error;
    fflush(to_remote);
    receive(&error, sizeof error, 1);
    if (err && error.status != MHA_OK) *err = error;
    return error.status;
}

mha_status mha_attn_plan_create(mha_ctx *ctx, const mha_attn_desc *desc, mha_attn_plan **out, mha_error *err)
{
    (void)ctx;
    connect_once();
    const wire_request request = {WIRE_PLAN, *desc, 0};
    fwrite(&request, sizeof request, 1, to_remote);
    *out = NULL;
    mha_status status = receive_status(err);
    if (status != MHA_OK) return status;
    *out = malloc(sizeof **out);
    if (!*out) abort();
    (*out)->desc = request.desc;
    return MHA_OK;
}

void mha_attn_plan_free(mha_attn_plan *plan)
{
    free(plan);
}

size_t mha_attn_plan_workspace(const mha_attn_plan *plan)
{
    (void)plan;
    return 0;
}

/* Not asked of the remote: whatever it rounds, it is held to the limits of one that does not. */
mha_dtype mha_attn_plan_weights(const mha_attn_plan *plan)
{
    (void)plan;
    return MHA_F32;
}

size_t mha_attn_plan_describe(const mha_attn_plan *plan, int json, char *text, size_t capacity)
{
    (void)plan;
    return (size_t)snprintf(text, capacity, json ? "{}" : "done by another program");
}

/* ---- calls ---- */

/* Strides of a view; all zero is contiguous, unless zeros broadcast there. */
static void strides_of(const int64_t given[4], const wire_array *a, int broadcasts, int64_t stride[4])
{
    memcpy(stride, given, 4 * sizeof *stride);
    if (broadcasts || given[0] || given[1] || given[2] || given[3]) return;
    stride[3] = 1;
    for (int n = 3; n > 0; n--)
        stride[n - 1] = stride[n] * a->dim[n];
}

/* Moves every element between the view and the wire, in the order of the indices. */
static void transfer(char *data, const int64_t stride[4], const wire_array *a, int receiving)
{
    for (int64_t b = 0; a->present && b < a->dim[0]; b++)
        for (int64_t h = 0; h < a->dim[1]; h++)
            for (int64_t i = 0; i < a->dim[2]; i++)
                for (int64_t j = 0; j < a->dim[3]; j++) {
                    int64_t at = b * stride[0] + h * stride[1] + i * stride[2] + j * stride[3];
                    char *element = data + at * (int64_t)a->size;
                    if (receiving)
                        receive(element, a->size, 1);
                    else
                        fwrite(element, a->size, 1, to_remote);
                }
}

static void send_field(const mha_attn_args *args, const wire_field *field, const wire_array *a)
{
    const char *at = (const char *)args + field->offset;
    int64_t stride[4] = {1, 0, 0, 0};
    mha_cview view = {0};
    if (field->kind == WIRE_LIST)
        memcpy(&view.data, at, sizeof view.data);
    else
        memcpy(&view, at, sizeof view);
    if (field->kind != WIRE_LIST) strides_of(view.stride, a, field->kind == WIRE_MASK, stride);
    transfer((char *)(uintptr_t)view.data, stride, a, 0);
}

static void send_view(const mha_cview *view, const wire_array *a)
{
    int64_t stride[4];
    strides_of(view->stride, a, 0, stride);
    transfer((char *)(uintptr_t)view->data, stride, a, 0);
}

static void receive_view(const mha_view *view, const wire_array *a)
{
    int64_t stride[4];
    strides_of(view->stride, a, 0, stride);
    transfer(view->data, stride, a, 1);
}

static void send_call(int64_t what, const mha_attn_plan *plan, const mha_attn_args *args)
{
    const wire_request request = {what, plan->desc, args->dropout_seed};
    const mha_attn_desc full = wire_filled(&plan->desc);
    wire_array in[WIRE_INPUTS];
    wire_shape_inputs(&full, in);
    fwrite(&request, sizeof request, 1, to_remote);
    for (int n = 0; n < WIRE_INPUTS; n++)
        send_field(args, &wire_inputs[n], &in[n]);
}

mha_status mha_attn_forward(const mha_attn_plan *plan, const mha_attn_args *args, void *workspace,
                            size_t workspace_bytes, mha_error *err)
{
    (void)workspace, (void)workspace_bytes;
    const mha_attn_desc full = wire_filled(&plan->desc);
    const mha_view *views[WIRE_OUTPUTS] = {&args->out, &args->lse, &args->probs, &args->scores};
    wire_array out[WIRE_OUTPUTS];
    wire_shape_outputs(&full, out);
    send_call(WIRE_CALL, plan, args);
    for (int n = 0; n < WIRE_OUTPUTS; n++)
        send_field(args, &wire_outputs[n], &out[n]);
    mha_status status = receive_status(err);
    for (int n = 0; n < WIRE_OUTPUTS && status == MHA_OK; n++)
        receive_view(views[n], &out[n]);
    return status;
}

/* A gradient: of the shape `full`, but with one place on an axis that is summed over. */
static wire_array written(const mha_view *view, wire_array full, int sums)
{
    full.present = view->data != NULL;
    for (int n = 0; n < 4 && sums; n++)
        if (view->stride[n] == 0) full.dim[n] = 1;
    return full;
}

mha_status mha_attn_backward(const mha_attn_plan *plan, const mha_attn_args *args, const mha_attn_grads *grads,
                             void *workspace, size_t workspace_bytes, mha_error *err)
{
    (void)workspace, (void)workspace_bytes;
    const mha_attn_desc full = wire_filled(&plan->desc), *d = &full;
    const mha_view *views[WIRE_GRADS] = {&grads->dq,      &grads->dk,     &grads->dv,     &grads->dbias,
                                         &grads->dslopes, &grads->dsinks, &grads->dgates, &grads->row_taylor};
    const mha_cview *read[4] = {&grads->dout, &grads->out, &grads->lse, &grads->dlse};
    const wire_array head = {{d->batch, d->heads, 1, 1}, 4, 1},
                     bias = {{d->batch, d->heads, d->max_q_len, d->max_kv_len}, 4, 1};
    wire_array in[WIRE_INPUTS], out[WIRE_OUTPUTS];
    wire_gradients g;
    memset(&g, 0, sizeof g);
    wire_shape_inputs(d, in);
    wire_shape_outputs(d, out);
    for (int n = 0; n < WIRE_GRADS; n++)
        g.written[n] = written(views[n], n < 3 ? in[n] : n == 3 ? bias : n == 7 ? out[1] : head, n >= 3 && n < 7);
    for (int n = 0; n < 4; n++) {
        g.read[n] = out[n / 2];
        g.read[n].present = read[n]->data != NULL;
    }
    send_call(WIRE_BACKWARD, plan, args);
    fwrite(&g, sizeof g, 1, to_remote);
    for (int n = 0; n < 4; n++)
        send_view(read[n], &g.read[n]);
    mha_status status = receive_status(err);
    for (int n = 0; n < WIRE_GRADS && status == MHA_OK; n++)
        receive_view(views[n], &g.written[n]);
    return status;
}

mha_status mha_attention(mha_ctx *ctx, const mha_attn_desc *desc, const mha_attn_args *args, mha_error *err)
{
    mha_attn_plan *plan;
    mha_status status = mha_attn_plan_create(ctx, desc, &plan, err);
    if (status == MHA_OK) status = mha_attn_forward(plan, args, NULL, 0, err);
    mha_attn_plan_free(plan);
    return status;
}

mha_status mha_attention_backward(mha_ctx *ctx, const mha_attn_desc *desc, const mha_attn_args *args,
                                  const mha_attn_grads *grads, mha_error *err)
{
    mha_attn_plan *plan;
    mha_attn_desc wanted = *desc;
    wanted.outputs |= MHA_ATTN_GRADS;
    mha_status status = mha_attn_plan_create(ctx, &wanted, &plan, err);
    if (status == MHA_OK) status = mha_attn_backward(plan, args, grads, NULL, 0, err);
    mha_attn_plan_free(plan);
    return status;
}
