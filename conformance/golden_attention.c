/* golden_attention.c - runs the golden cases of the attention operator. index.json describes the cases, and one file
 * per case contains its inputs and expected results. */
#include "conformance/golden_attention.h"

#include "output.h"
#include "session.h"
#include <math.h>
#include <string.h>

/* ---- description ---- */

static mha_dtype input_type(const verify_entry *e)
{
    static const struct {
        const char *name;
        mha_dtype dtype;
    } types[] = {{"F32", MHA_F32}, {"BF16", MHA_BF16}, {"F16", MHA_F16}, {"F64", MHA_F64}};
    const char *name = verify_text(e, "input_dtype");
    for (size_t n = 0; n < sizeof types / sizeof *types; n++)
        if (strcmp(name, types[n].name) == 0) return types[n].dtype;
    verify_fault(e, "\"input_dtype\" must be F32, BF16, F16 or F64 (got \"%s\")", cli_shown(name));
    return MHA_DTYPE_DEFAULT;
}

static void describe_sizes(attention_case *c)
{
    const verify_entry *e = &c->entry;
    mha_attn_desc *d = &c->desc;
    *d = (mha_attn_desc){.size = sizeof *d, .dtype = input_type(e)};
    c->B = d->batch = verify_int(e, "batch");
    c->H = d->heads = verify_int(e, "q_heads");
    c->Hkv = d->kv_heads = verify_int(e, "kv_heads");
    c->Lq = d->q_len = verify_int(e, "q_len");
    c->Lk = d->kv_len = verify_int(e, "kv_len");
    c->D = d->head_dim = verify_int(e, "head_dim");
    c->Dv = d->v_head_dim = verify_int(e, "value_dim");
    d->softcap = verify_real(e, "softcap");
    d->scale = verify_bool(e, "scale_is_default") ? 0 : verify_real(e, "scale");
}

static void describe_masks(attention_case *c)
{
    const verify_entry *e = &c->entry;
    mha_attn_desc *d = &c->desc;
    int64_t window[2] = {-1, -1}, block[2] = {0, 0};
    verify_ints(e, "window", window, 2);
    d->causal = verify_bool(e, "causal");
    d->align = MHA_ALIGN_OFFSETS; /* "q_offset" is used; "align" only documents how q_offset was chosen */
    if (window[0] != -1 || window[1] != -1) d->window = (mha_window){1, window[0], window[1]};
    if (verify_has(e, "block")) verify_ints(e, "block", block, 2);
    d->block_q = block[0];
    d->block_k = block[1];
    static const struct {
        const char *key;
        uint32_t input;
    } inputs[] = {{"key_lengths", MHA_ATTN_KV_LENS},
                  {"bool_mask", MHA_ATTN_KEEP},
                  {"bias", MHA_ATTN_BIAS},
                  {"prefix_lengths", MHA_ATTN_PREFIX_LENS},
                  {"block", MHA_ATTN_BLOCK_KEEP}};
    for (size_t n = 0; n < sizeof inputs / sizeof *inputs; n++)
        if (verify_has(e, inputs[n].key)) d->inputs |= inputs[n].input;
    c->packed = strcmp(verify_text(e, "layout"), "packed") == 0;
    if (c->packed) d->inputs |= MHA_ATTN_CU_SEQLENS;
    if (verify_bool(e, "alibi")) d->inputs |= MHA_ATTN_SLOPES;
    if (verify_bool(e, "sinks")) d->inputs |= MHA_ATTN_SINKS;
    if (verify_records(e, "lse")) d->outputs |= MHA_ATTN_LSE;
    if (verify_records(e, "attn")) d->outputs |= MHA_ATTN_PROBS;
    verify_describe_gradients(c);
}

/* ---- operands ---- */

/* Returns the elements of a contiguous tensor with exactly this shape. */
static const void *dense(attention_case *c, const char *name, int rank, int64_t *shape)
{
    return verify_raw(&c->memory, &c->entry, verify_tensor(&c->entry, c->file, name, rank, shape));
}

/* Returns the elements of a mask or bias, whose dimensions of size 1 are broadcast. */
static mha_cview spread(attention_case *c, const char *name, mha_dtype dtype)
{
    const int64_t want[4] = {c->B, c->H, c->Lq, c->Lk};
    int64_t shape[4] = {-1, -1, -1, -1};
    mha_cview view = {0};
    const mha_tensor *tensor = verify_tensor(&c->entry, c->file, name, 4, shape);
    if (!tensor) return view;
    if (tensor->dtype != dtype)
        verify_fault(&c->entry, "tensor \"%s\" must have dtype %s (got %s)", name, mha_dtype_name(dtype),
                     tensor->dtype_name);
    int64_t step = 1;
    for (int n = 3; n >= 0; n--) {
        if (shape[n] != 1 && shape[n] != want[n])
            verify_fault(&c->entry, "tensor \"%s\": dimension %d must be 1 or %lld (got %lld)", name, n,
                         (long long)want[n], (long long)shape[n]);
        view.stride[n] = shape[n] == 1 ? 0 : step;
        step *= shape[n];
    }
    view.data = verify_raw(&c->memory, &c->entry, tensor);
    return view;
}

static const int64_t *per_sequence(attention_case *c, const char *key)
{
    int64_t *values = verify_alloc(&c->memory, c->B, sizeof *values, &c->entry);
    if (values) verify_ints(&c->entry, key, values, c->B);
    return values;
}

static const int64_t *packing(attention_case *c, const char *name)
{
    int64_t entries[1] = {c->B + 1};
    return verify_integers(&c->memory, &c->entry, verify_tensor(&c->entry, c->file, name, 1, entries));
}

static void bind_features(attention_case *c)
{
    mha_attn_args *a = &c->args;
    uint32_t inputs = c->desc.inputs;
    int64_t heads[1] = {c->H};
    if (inputs & MHA_ATTN_KEEP) a->keep = spread(c, "bool_mask", MHA_BOOL);
    if (inputs & MHA_ATTN_BIAS) a->bias = spread(c, "bias", MHA_F32);
    if (inputs & MHA_ATTN_KV_LENS) a->kv_lens = per_sequence(c, "key_lengths");
    if (inputs & MHA_ATTN_PREFIX_LENS) a->prefix_lens = per_sequence(c, "prefix_lengths");
    if (inputs & MHA_ATTN_SLOPES) a->slopes = (mha_cview){dense(c, "slopes", 1, heads), {0, 1, 0, 0}};
    if (inputs & MHA_ATTN_SINKS) a->sinks = (mha_cview){dense(c, "sinks", 1, heads), {0, 1, 0, 0}};
    if (c->packed) {
        a->cu_seqlens_q = packing(c, "cu_seqlens_q");
        a->cu_seqlens_k = packing(c, "cu_seqlens_k");
    }
    if (inputs & MHA_ATTN_BLOCK_KEEP) {
        int64_t shape[3] = {c->H, -1, -1};
        const void *data = dense(c, "block_mask", 3, shape);
        a->block_keep = (mha_cview){data, {0, shape[1] * shape[2], shape[2], 1}};
    }
}

static mha_status bind_case(attention_case *c)
{
    mha_attn_args *a = &c->args;
    *a = (mha_attn_args){.size = sizeof *a};
    a->q = verify_typed(c, "q", c->H, c->Lq, c->D);
    a->k = verify_typed(c, "k", c->Hkv, c->Lk, c->D);
    a->v = verify_typed(c, "v", c->Hkv, c->Lk, c->Dv);
    a->offsets = per_sequence(c, "q_offset");
    bind_features(c);
    /* Results have the shapes of the recorded tensors, so the size of the file limits these allocations. */
    const mha_tensor *out = verify_operand(c, "out", c->H, c->Lq, c->Dv, a->out.stride);
    a->out.data = c->out =
        out ? verify_alloc(&c->memory, out->elements, mha_dtype_size(c->desc.dtype), &c->entry) : NULL;
    if (c->desc.outputs & MHA_ATTN_LSE) {
        int64_t dense[3] = {c->B, c->H, c->Lq};
        const int64_t rows = c->packed ? c->H * c->Lq : c->B * c->H * c->Lq;
        if (verify_records(&c->entry, "lse"))
            verify_tensor(&c->entry, c->file, "lse", c->packed ? 2 : 3, c->packed ? dense + 1 : dense);
        a->lse.data = c->lse = out ? verify_alloc(&c->memory, rows, sizeof(float), &c->entry) : NULL;
    }
    if (c->desc.outputs & MHA_ATTN_PROBS) {
        const mha_tensor *p = verify_tensor(&c->entry, c->file, "attn", 4, (int64_t[]){c->B, c->H, c->Lq, c->Lk});
        a->probs.data = c->probs = p ? verify_alloc(&c->memory, p->elements, sizeof(float), &c->entry) : NULL;
    }
    return c->entry.error->status == MHA_OK ? verify_bind_gradients(c) : c->entry.error->status;
}

/* ---- execution and comparison ---- */

/* Runs the forward pass, and the backward pass if the case has gradients. */
static mha_status compute(mha_ctx *ctx, const mha_attn_plan *plan, const attention_case *c, mha_error *error)
{
    size_t bytes = mha_attn_plan_workspace(plan);
    void *workspace = mha_alloc(ctx, bytes);
    if (bytes && !workspace) {
        *error = (mha_error){MHA_ERR_MEMORY, "out of memory for the workspace"};
        return MHA_ERR_MEMORY;
    }
    mha_status status = mha_attn_forward(plan, &c->args, workspace, bytes, error);
    if (status == MHA_OK && (c->desc.outputs & MHA_ATTN_GRADS))
        status = mha_attn_backward(plan, &c->args, &c->grads, workspace, bytes, error);
    mha_free(ctx, workspace);
    return status;
}

/* Requests only the last and the first row of the last head, and compares them with the recorded map. */
static void check_chosen(mha_ctx *ctx, attention_case *c, verify_case *outcome)
{
    const int32_t heads[1] = {(int32_t)c->H - 1};
    const int64_t rows[2] = {-1, 0}, places[2] = {c->Lq - 1, 0};
    const verify_entry limits = {json_object_get(c->entry.object, "atol"), c->entry.name, c->entry.error};
    const double limit = verify_real(&limits, "attn");
    const double *want = verify_reals(&c->memory, &c->entry, mha_file_find(c->file, "attn"));
    float *maps = verify_alloc(&c->memory, c->B * 2 * c->Lk, sizeof *maps, &c->entry);
    mha_error error = {0};
    mha_attn_desc d = c->desc;
    mha_attn_args a = c->args;
    if (!want || !maps || c->Lq < 1) return;
    d.inputs |= MHA_ATTN_MAP_HEADS | MHA_ATTN_MAP_ROWS;
    d.outputs = MHA_ATTN_PROBS;
    d.map_heads = 1, d.map_rows = 2;
    a.map_heads = heads, a.map_rows = (mha_cview){rows, {0, 1, 0, 0}};
    a.lse.data = NULL;
    a.probs = (mha_view){maps, {0}};
    if (mha_attention(ctx, &d, &a, &error) != MHA_OK) verify_stopped(outcome, &error);
    for (int64_t n = 0; n < 2 * c->B && error.status == MHA_OK; n++)
        verify_compare(outcome, "attn of chosen rows", maps + n * c->Lk,
                       want + (((n / 2 + 1) * c->H - 1) * c->Lq + places[n % 2]) * c->Lk, c->Lk, limit);
}

/* Runs a case that the library accepts. Errors in the folder are stored in entry.error, and errors of the library in
 * the outcome. */
static void check_accepted(mha_ctx *ctx, attention_case *c, const mha_attn_plan *plan, const char *folder,
                           verify_case *outcome)
{
    mha_error error = {0};
    if (verify_file_open(ctx, folder, &c->entry, verify_text(&c->entry, "file"), &c->file) != MHA_OK) return;
    if (bind_case(c) != MHA_OK) return;
    if (compute(ctx, plan, c, &error) != MHA_OK) {
        verify_stopped(outcome, &error);
        return;
    }
    verify_typed_result(c, outcome, "out", c->out);
    if (verify_records(&c->entry, "lse")) verify_float_result(c, outcome, "lse", c->lse);
    if (c->probs) verify_float_result(c, outcome, "attn", c->probs);
    if (c->probs) check_chosen(ctx, c, outcome);
    verify_compare_gradients(c, plan, outcome);
}

static mha_status check_case(cli_session *session, const char *folder, const json_t *object, verify_log *log,
                             mha_error *error)
{
    const char *name = json_string_value(json_object_get(object, "name"));
    attention_case c = {.entry = {object, name ? name : "case without a name", error}, .roundings = 1};
    verify_case outcome;
    mha_error refusal = {0};
    mha_attn_plan *plan = NULL;
    verify_begin(&outcome, verify_text(&c.entry, "group"), c.entry.name);
    describe_sizes(&c);
    describe_masks(&c);
    if (error->status == MHA_OK) {
        if (mha_attn_plan_create(session->ctx, &c.desc, &plan, &refusal) == MHA_OK) {
            check_accepted(session->ctx, &c, plan, folder, &outcome);
        } else {
            verify_stopped(&outcome, &refusal);
        }
    }
    mha_attn_plan_free(plan);
    mha_file_free(c.file);
    verify_release(&c.memory);
    if (error->status == MHA_OK) verify_end(log, &outcome);
    return error->status;
}

int verify_attention(cli_session *session, const char *folder, const json_t *index, verify_log *log)
{
    size_t n;
    json_t *object;
    mha_error error = {0};
    json_array_foreach(json_object_get(index, "cases"), n, object)
    {
        if (cli_signal()) return 128 + cli_signal();
        if (check_case(session, folder, object, log, &error) != MHA_OK) return cli_refuse(session, &error);
    }
    return CLI_DONE;
}
