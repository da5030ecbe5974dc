/* fuzz_attn.c - decodes bytes as the description and arguments of an attention call: valid and invalid features, sizes,
 * types and strides; missing bytes are 0. All memory is between guard pages. The forward and the backward pass must
 * either compute results or return an error without writing results, and must not access memory outside the arguments.
 */
#include "fuzz.h"
#include "mha/attn_grads.h"
#include "mha/stats.h"
#include "support/attn/guarded.h"
#include "support/attn/problem.h"
#include "support/isas.h"
#include "support/rng.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 32, Q8_SIZE = 34, Q4_SIZE = 18, RESULTS_MAX = 24, RANGE_MAX = 1 << 30 };

typedef struct call {
    const uint8_t *bytes, *end;
    rng numbers;
    mha_attn_desc desc;
    int64_t Hkv, Dv, Mq, Mk, results; /* dimensions, with defaults applied */
    mha_dtype kv, bias, real;
    bool packed, paged;
    mha_attn_args args;
    mha_attn_stats stats;
    mha_attn_grads grads;
    bool fits; /* true if all requested tensors have memory */
    struct result {
        const void *data;
        size_t bytes;
    } result[RESULTS_MAX]; /* tensors that the call may write */
    int result_count;
} call;

static int64_t below(call *c, int64_t limit)
{
    return c->bytes < c->end ? *c->bytes++ % limit : 0;
}

/* ---- the description ---- */

/* Returns a value from a list or, rarely, a value that is not in the list. */
static int64_t pick(call *c, const int64_t *list, int64_t n)
{
    static const int64_t wild[] = {-1, 0, INT64_C(1) << 31, INT64_C(1) << 40, INT64_MAX, INT64_MIN};
    const int64_t at = below(c, 256);
    return at >= 254 ? wild[below(c, 6)] : list[at % n];
}
#define PICK(c, ...) \
    pick(c, (const int64_t[]){__VA_ARGS__}, (int64_t)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

/* Returns a random subset of the bits `all`; each bit is kept with a probability of 1/4. */
static uint32_t some_bits(call *c, uint32_t all)
{
    uint32_t bits = all;
    for (int n = 0; n < 2; n++)
        bits &= (uint32_t)below(c, 256) | (uint32_t)below(c, 256) << 8;
    return bits;
}

static void make_sizes(call *c, mha_attn_desc *d)
{
    d->batch = PICK(c, 1, 1, 2, 3);
    d->kv_heads = PICK(c, 0, 1, 2);
    d->heads = PICK(c, 1, 2, 4, 6);
    d->q_len = PICK(c, 0, 1, 2, 3, 5, 9, 17, 33, 40, 130);
    d->kv_len = PICK(c, 0, 1, 2, 7, 16, 33, 64, 127, 128, 129, 200, 300);
    d->head_dim = PICK(c, 1, 2, 3, 8, 16, 17, 31, 32, 33, 64, 96, 1024);
    d->v_head_dim = PICK(c, 0, 0, 1, 7, 16, 33, 64, 1023);
}

static void make_types(call *c, mha_attn_desc *d)
{
    static const mha_dtype types[] = {MHA_DTYPE_DEFAULT, MHA_F32,  MHA_BF16, MHA_F16,
                                      MHA_F64,           MHA_Q8_0, MHA_Q4_0, MHA_F8_E4M3};
    d->dtype = types[below(c, 5)];
    d->kv_dtype = below(c, 2) ? types[below(c, 8)] : MHA_DTYPE_DEFAULT;
    d->bias_dtype = below(c, 4) ? MHA_DTYPE_DEFAULT : types[below(c, 5)];
    d->scale = below(c, 2) ? 0 : (double)below(c, 256) / 64 - 2;
    d->softcap = below(c, 4) ? 0 : (double)below(c, 256) / 16;
    d->dropout = below(c, 4) ? 0 : (double)below(c, 256) / 250;
}

static void make_masks(call *c, mha_attn_desc *d)
{
    d->causal = (int)below(c, 2);
    d->align = (mha_align)below(c, 5);
    if (below(c, 3) == 0) d->window = (mha_window){1, below(c, 80) - 2, below(c, 80) - 2};
    d->inputs = some_bits(c, 2 * (uint32_t)MHA_ATTN_MAP_ROWS - 1);
    d->outputs = some_bits(c, 2 * (uint32_t)MHA_ATTN_ROWS - 1);
    if (!(d->outputs & (MHA_ATTN_PROBS | MHA_ATTN_SCORES | MHA_ATTN_ROWS)))
        d->inputs &= ~(uint32_t)(MHA_ATTN_MAP_HEADS | MHA_ATTN_MAP_ROWS);
    const uint32_t in = d->inputs;
    if ((in & MHA_ATTN_KEEP) && below(c, 2)) d->keep_keys = PICK(c, 0, 1, 7, 16);
    if (in & MHA_ATTN_BLOCK_KEEP) d->block_q = PICK(c, 1, 3, 16, 128), d->block_k = PICK(c, 1, 5, 64, 128);
    if (in & MHA_ATTN_BLOCK_TABLE) d->page_size = PICK(c, 16, 32, 128, 256), d->pages = PICK(c, 0, 1, 4, 9);
    if (in & MHA_ATTN_HEAD_LIST) d->listed_heads = PICK(c, 1, 2);
    if (in & MHA_ATTN_MAP_HEADS) d->map_heads = PICK(c, 1, 2, 5);
    if (in & MHA_ATTN_MAP_ROWS) d->map_rows = PICK(c, 1, 2, 9);
    if (d->outputs & MHA_ATTN_STATS) d->top_keys = PICK(c, 0, 1, 3, 32);
    if (d->outputs & MHA_ATTN_SCORES) d->scores = (mha_scores)below(c, 4);
    if ((in & MHA_ATTN_CU_SEQLENS) && below(c, 3) == 0) d->max_q_len = PICK(c, 1, 9, 130);
    if ((in & MHA_ATTN_CU_SEQLENS) && below(c, 3) == 0) d->max_kv_len = PICK(c, 7, 64, 300);
}

/* Sets the dimensions and types of `c` from the description, with the documented defaults for fields that are 0. */
static void fill_defaults(call *c)
{
    const mha_attn_desc *d = &c->desc;
    const mha_dtype type = d->dtype ? d->dtype : MHA_F32;
    c->Hkv = d->kv_heads ? d->kv_heads : d->heads;
    c->Dv = d->v_head_dim ? d->v_head_dim : d->head_dim;
    c->Mq = d->max_q_len ? d->max_q_len : d->q_len;
    c->Mk = d->max_kv_len ? d->max_kv_len : d->kv_len;
    c->results = d->listed_heads ? d->listed_heads : d->heads;
    c->desc.dtype = type;
    c->kv = d->kv_dtype ? d->kv_dtype : type;
    c->real = type == MHA_F64 ? MHA_F64 : MHA_F32;
    c->bias = d->bias_dtype ? d->bias_dtype : c->real;
    c->packed = d->inputs & MHA_ATTN_CU_SEQLENS;
    c->paged = d->inputs & MHA_ATTN_BLOCK_TABLE;
}

/* ---- operands and their memory ---- */

static bool is_blocked(mha_dtype dtype)
{
    return dtype == MHA_Q8_0 || dtype == MHA_Q4_0;
}

static size_t size_of(mha_dtype dtype)
{
    return dtype == MHA_Q8_0 ? (size_t)Q8_SIZE : dtype == MHA_Q4_0 ? (size_t)Q4_SIZE : mha_dtype_size(dtype);
}

/* Fills memory with elements near 1 and, rarely, random bits. */
static void fill(call *c, void *data, size_t bytes, mha_dtype dtype)
{
    const size_t size = is_blocked(dtype) ? 2 : size_of(dtype);
    for (size_t n = 0; n + size <= bytes; n += size) {
        uint64_t bits = rng_next(&c->numbers);
        const bool any = bits >> 56 == 0;
        if (dtype == MHA_F64 && !any) bits = (bits & UINT64_C(0x800FFFFFFFFFFFFF)) | UINT64_C(0x3FE) << 52;
        if (dtype == MHA_F32 && !any) bits = (bits & 0x807FFFFF) | 0x3F000000;
        if (dtype == MHA_BF16 && !any) bits = (bits & 0x807F) | 0x3F00;
        if (dtype == MHA_F16 && !any) bits = (bits & 0x83FF) | 0x3800;
        if (dtype == MHA_U8) bits = bits & 1;
        memcpy((char *)data + n, &bits, size);
    }
}

/* Sets random strides for a view; zero strides in all axes select the contiguous layout. */
static void make_strides(call *c, const int64_t shape[4], bool output, int64_t stride[4])
{
    const int64_t way = below(c, 8);
    int64_t step = 1;
    memset(stride, 0, 4 * sizeof *stride);
    if (way < 3) return;
    const bool by_row = way == 4;
    static const int plain[4] = {3, 2, 1, 0}, rows[4] = {3, 1, 2, 0};
    for (int n = 0; n < 4; n++) {
        const int axis = by_row ? rows[n] : plain[n];
        stride[axis] = way == 7 ? below(c, 64) - 16 : below(c, 16) == 0 ? -step : step;
        const int64_t pad = way == 5 ? below(c, 4) : 0;
        if (shape[axis] > RANGE_MAX || __builtin_mul_overflow(step, shape[axis] + pad, &step)) c->fits = false;
        if (way == 6 && !output && below(c, 3) == 0) stride[axis] = 0;
    }
}

/* Computes the lowest and highest element offset of a view. Returns false if an offset overflows. */
static bool reach(const int64_t shape[4], const int64_t stride[4], int64_t *low, int64_t *high)
{
    int64_t step = 1, far;
    const bool zero = !stride[0] && !stride[1] && !stride[2] && !stride[3];
    *low = *high = 0;
    for (int n = 3; n >= 0; n--) {
        if (__builtin_mul_overflow(shape[n] - 1, zero ? step : stride[n], &far)) return false;
        if (__builtin_add_overflow(far < 0 ? *low : *high, far, far < 0 ? low : high)) return false;
        if (__builtin_mul_overflow(step, shape[n], &step)) return false;
    }
    return *low > -GUARDED_MAX && *high < GUARDED_MAX;
}

/* Allocates memory for a view and sets *data to its first element. With `broadcasts`, zeros in all axes are actual
 * strides instead of the default. */
static void place(call *c, const int64_t shape[4], mha_dtype dtype, bool output, bool broadcasts, void **data,
                  int64_t stride[4])
{
    const size_t size = size_of(dtype), align = size & -size;
    const bool empty = shape[0] <= 0 || shape[1] <= 0 || shape[2] <= 0 || shape[3] <= 0, at_start = below(c, 4) == 0;
    int64_t low = 0, high = -1;
    make_strides(c, shape, output, stride);
    const bool all_zero = broadcasts && !stride[0] && !stride[1] && !stride[2] && !stride[3];
    if (all_zero) high = 0;
    if (!empty && !all_zero && !reach(shape, stride, &low, &high)) c->fits = false;
    if (!c->fits) return;
    const size_t bytes = (size_t)(high - low + 1) * size;
    char *memory = guarded_take(bytes, align, at_start);
    c->fits = memory != NULL && c->result_count < RESULTS_MAX;
    if (!c->fits) return;
    *data = empty ? memory : memory - low * (int64_t)size;
    if (!output) fill(c, memory, bytes, dtype);
    if (output) c->result[c->result_count++] = (struct result){memory, bytes};
    if (size > 1 && below(c, 128) == 127) *data = below(c, 2) ? NULL : (char *)*data + 1;
}

#define SHAPE(a, b, c, d) ((const int64_t[4]){(a), (b), (c), (d)})

static mha_cview input(call *c, const int64_t shape[4], mha_dtype dtype, bool broadcasts)
{
    mha_view view = {0};
    place(c, shape, dtype, false, broadcasts, &view.data, view.stride);
    return (mha_cview){view.data, {view.stride[0], view.stride[1], view.stride[2], view.stride[3]}};
}

static mha_view output(call *c, const int64_t shape[4], mha_dtype dtype)
{
    mha_view view = {0};
    place(c, shape, dtype, true, false, &view.data, view.stride);
    return view;
}

/* Returns `count` integers from `low` to `high`; rarely, one of them is outside this range. */
static void *integers(call *c, int64_t count, size_t size, int64_t low, int64_t high)
{
    char *list = count >= 0 && count < 4096 ? guarded_take((size_t)count * size, size, false) : NULL;
    c->fits = c->fits && list && low >= -RANGE_MAX && high <= RANGE_MAX;
    for (int64_t n = 0; c->fits && n < count; n++) {
        const int64_t span = high - low + 1, one = below(c, 64) == 63 ? 1 : 0;
        const int64_t value = span > 0 ? low + below(c, 256) * 7 % span + one * span : low - one;
        if (size == sizeof(int32_t)) memcpy(list + (size_t)n * size, &(int32_t){(int32_t)value}, size);
        if (size == sizeof(int64_t)) memcpy(list + (size_t)n * size, &value, size);
    }
    return list;
}

/* Returns the offsets of packed sequences, usually ascending to `total`. */
static int64_t *packing(call *c, int64_t total)
{
    int64_t *cu = integers(c, c->desc.batch + 1, sizeof *cu, 0, total);
    for (int64_t n = 0; c->fits && n < c->desc.batch && below(c, 32) != 31; n++) {
        if (n == 0) cu[0] = 0;
        if (n > 0 && cu[n] < cu[n - 1]) cu[n] = cu[n - 1];
        cu[c->desc.batch] = total;
    }
    return cu;
}

/* ---- arguments ---- */

static int64_t blocks(int64_t length, int64_t size)
{
    return length / size + (length % size != 0);
}

static void visit(void *user, const mha_attn_rows *rows)
{
    const size_t size = *(const mha_dtype *)user == MHA_F64 ? sizeof(double) : sizeof(float);
    static volatile unsigned sink;
    unsigned sum = 0;
    for (int64_t r = 0; r < rows->count; r++)
        for (size_t n = 0; n < (size_t)rows->keys * size; n++)
            sum += ((const uint8_t *)rows->p)[(size_t)(r * rows->stride) * size + n];
    sink = sum;
    (void)sink;
}

static void make_arrays(call *c, mha_attn_args *a)
{
    const mha_attn_desc *d = &c->desc;
    const uint32_t in = d->inputs;
    const int64_t B = d->batch;
    if (in & MHA_ATTN_Q_LENS) a->q_lens = integers(c, B, sizeof(int64_t), 0, c->packed ? 2 : d->q_len);
    if (in & MHA_ATTN_KV_LENS) a->kv_lens = integers(c, B, sizeof(int64_t), 0, c->packed && !c->paged ? 2 : d->kv_len);
    if (in & MHA_ATTN_PREFIX_LENS) a->prefix_lens = integers(c, B, sizeof(int64_t), 0, c->Mk);
    if (d->align == MHA_ALIGN_OFFSETS) a->offsets = integers(c, B, sizeof(int64_t), -5, 200);
    if (in & MHA_ATTN_HEAD_LIST) a->head_list = integers(c, d->listed_heads, sizeof(int32_t), 0, d->heads - 1);
    if (in & MHA_ATTN_MAP_HEADS) a->map_heads = integers(c, d->map_heads, sizeof(int32_t), 0, c->results - 1);
    if (c->packed) a->cu_seqlens_q = packing(c, d->q_len);
    if (c->packed && !c->paged) a->cu_seqlens_k = packing(c, d->kv_len);
    int64_t entries = 0;
    if (in & MHA_ATTN_MAP_ROWS) {
        if (__builtin_mul_overflow(B, d->map_rows, &entries)) c->fits = false;
        a->map_rows.data = integers(c, entries, sizeof(int64_t), -c->Mq, c->Mq - 1);
    }
    if (!c->paged || d->page_size <= 0) return;
    if (__builtin_mul_overflow(B, blocks(d->kv_len, d->page_size), &entries)) c->fits = false;
    a->block_table.data = integers(c, entries, sizeof(int32_t), -1, d->pages - 1);
}

static void make_inputs(call *c, mha_attn_args *a)
{
    const mha_attn_desc *d = &c->desc;
    const uint32_t in = d->inputs;
    const int64_t B = d->batch, H = d->heads, first = c->packed ? 1 : B, unit = is_blocked(c->kv) ? BLOCK : 1;
    const int64_t keys_first = c->paged ? d->pages : first, keys = c->paged ? d->page_size : d->kv_len;
    a->q = input(c, SHAPE(first, H, d->q_len, d->head_dim), d->dtype, false);
    a->k = input(c, SHAPE(keys_first, c->Hkv, keys, blocks(d->head_dim, unit)), c->kv, false);
    a->v = input(c, SHAPE(keys_first, c->Hkv, keys, blocks(c->Dv, unit)), c->kv, false);
    const int64_t kept = d->keep_keys ? d->keep_keys : c->Mk;
    if (in & MHA_ATTN_KEEP) a->keep = input(c, SHAPE(B, H, c->Mq, kept), MHA_U8, true);
    if (in & MHA_ATTN_BIAS) a->bias = input(c, SHAPE(B, H, c->Mq, c->Mk), c->bias, true);
    if (in & MHA_ATTN_DROPOUT_KEEP) a->dropout_keep = input(c, SHAPE(B, H, c->Mq, c->Mk), MHA_U8, true);
    if (in & MHA_ATTN_SLOPES) a->slopes = input(c, SHAPE(B, H, 1, 1), c->real, true);
    if (in & MHA_ATTN_SINKS) a->sinks = input(c, SHAPE(B, H, 1, 1), c->real, true);
    if (in & MHA_ATTN_GATES) a->gates = input(c, SHAPE(B, H, 1, 1), c->real, true);
    if (in & MHA_ATTN_BLOCK_KEEP)
        a->block_keep = input(c, SHAPE(B, H, blocks(c->Mq, d->block_q), blocks(c->Mk, d->block_k)), MHA_U8, true);
}

static void make_stats(call *c, mha_attn_stats *s)
{
    const mha_attn_desc *d = &c->desc;
    const int64_t first = c->packed ? 1 : d->batch, Lq = d->q_len, top = d->top_keys;
    s->size = sizeof *s;
    if (below(c, 2)) s->row_entropy = output(c, SHAPE(first, c->results, Lq, 1), c->real);
    if (below(c, 2)) s->row_max = output(c, SHAPE(first, c->results, Lq, 1), c->real);
    if (below(c, 2)) s->row_argmax = output(c, SHAPE(first, c->results, Lq, 1), MHA_I64);
    if (below(c, 2)) s->row_distance = output(c, SHAPE(first, c->results, Lq, 1), c->real);
    if (below(c, 2)) s->received = output(c, SHAPE(c->paged ? d->batch : first, c->results, d->kv_len, 1), c->real);
    if (top > 0) s->top_prob = output(c, SHAPE(first, c->results, Lq, top), c->real);
    if (top > 0) s->top_key = output(c, SHAPE(first, c->results, Lq, top), MHA_I64);
}

static void make_outputs(call *c, mha_attn_args *a)
{
    const mha_attn_desc *d = &c->desc;
    const int64_t first = c->packed ? 1 : d->batch;
    const int64_t map_heads = d->map_heads ? d->map_heads : c->results, map_rows = d->map_rows ? d->map_rows : c->Mq;
    a->out = output(c, SHAPE(first, c->results, d->q_len, c->Dv), d->dtype);
    if (below(c, 32) == 31) a->out = (mha_view){(void *)(uintptr_t)a->q.data, {0}}; /* out replaces q */
    if (d->outputs & MHA_ATTN_LSE) a->lse = output(c, SHAPE(first, c->results, d->q_len, 1), c->real);
    if (d->outputs & MHA_ATTN_PROBS) a->probs = output(c, SHAPE(d->batch, map_heads, map_rows, c->Mk), c->real);
    if (d->outputs & MHA_ATTN_SCORES) a->scores = output(c, SHAPE(d->batch, map_heads, map_rows, c->Mk), c->real);
    if (d->outputs & MHA_ATTN_STATS) make_stats(c, &c->stats), a->stats = &c->stats;
    a->on_rows = (mha_attn_visitor){visit, &c->real};
}

static void make_gradients(call *c, mha_attn_grads *g)
{
    const mha_attn_desc *d = &c->desc;
    const uint32_t in = d->inputs;
    const int64_t B = d->batch, H = d->heads, first = c->packed ? 1 : B;
    const int64_t keys_first = c->paged ? d->pages : first, keys = c->paged ? d->page_size : d->kv_len;
    *g = (mha_attn_grads){.size = sizeof *g};
    g->dout = input(c, SHAPE(first, c->results, d->q_len, c->Dv), d->dtype, false);
    g->out = (mha_cview){c->args.out.data, {0}};
    memcpy(g->out.stride, c->args.out.stride, sizeof g->out.stride);
    g->lse = (mha_cview){c->args.lse.data, {0}};
    memcpy(g->lse.stride, c->args.lse.stride, sizeof g->lse.stride);
    if (!(d->outputs & MHA_ATTN_LSE)) g->lse = input(c, SHAPE(first, c->results, d->q_len, 1), c->real, false);
    if (below(c, 4) == 0) g->dlse = input(c, SHAPE(first, c->results, d->q_len, 1), c->real, false);
    if (below(c, 4)) g->dq = output(c, SHAPE(first, H, d->q_len, d->head_dim), d->dtype);
    if (below(c, 4)) g->dk = output(c, SHAPE(keys_first, c->Hkv, keys, d->head_dim), c->kv);
    if (below(c, 4)) g->dv = output(c, SHAPE(keys_first, c->Hkv, keys, c->Dv), c->kv);
    if ((in & MHA_ATTN_BIAS) && below(c, 2)) g->dbias = output(c, SHAPE(B, H, c->Mq, c->Mk), c->real);
    if ((in & MHA_ATTN_SLOPES) && below(c, 2)) g->dslopes = output(c, SHAPE(B, H, 1, 1), c->real);
    if ((in & MHA_ATTN_SINKS) && below(c, 2)) g->dsinks = output(c, SHAPE(B, H, 1, 1), c->real);
    if ((in & MHA_ATTN_GATES) && below(c, 2)) g->dgates = output(c, SHAPE(B, H, 1, 1), c->real);
    if (below(c, 8) == 0) g->row_taylor = output(c, SHAPE(first, c->results, d->q_len, 1), c->real);
}

/* ---- the call ---- */

static mha_ctx *context(call *c)
{
    static mha_ctx *all[PROBLEM_ISAS]; /* never freed */
    static int count;
    if (count == 0) count = isas_create(all, 1);
    return all[below(c, count)];
}

/* Checks that the call wrote only its arguments and, if it failed, that it returned a message and did not write any
 * result from index `first` on. */
static void check_ending(const call *c, mha_status status, const mha_error *err, int first)
{
    fuzz_check(guarded_intact(), "memory outside the arguments must not be written");
    fuzz_refusal(status, err, "");
    if (status == MHA_OK) return;
    fuzz_check(status == MHA_ERR_ARG || status == MHA_ERR_UNSUPPORTED,
               "status must be MHA_OK, MHA_ERR_ARG or MHA_ERR_UNSUPPORTED");
    for (int n = first; n < c->result_count; n++)
        fuzz_check(guarded_unwritten(c->result[n].data, c->result[n].bytes), "a failed call must not write results");
}

/* Returns true if the call is estimated to be too slow for fuzzing. The backward pass visits every head of every
 * sequence, empty sequences included, so lengths count as 1 at least. */
static bool is_large(const call *c)
{
    const mha_attn_desc *d = &c->desc;
    const double rows = fmax((double)d->q_len, 1), keys = fmax((double)d->kv_len, 1);
    return (double)d->batch * (double)d->heads * rows * keys * (double)(d->head_dim + c->Dv) > 2e7;
}

static void run(call *c, const mha_attn_plan *plan)
{
    mha_error err = {0};
    const size_t bytes = mha_attn_plan_workspace(plan);
    void *workspace = guarded_take(bytes, 64, false);
    c->fits = workspace != NULL && !is_large(c);
    if (c->fits) make_arrays(c, &c->args);
    if (c->fits) make_inputs(c, &c->args);
    if (c->fits) make_outputs(c, &c->args);
    if (!c->fits) return;
    mha_status status = mha_attn_forward(plan, &c->args, workspace, bytes, &err);
    check_ending(c, status, &err, 0);
    if (status != MHA_OK || !(c->desc.outputs & MHA_ATTN_GRADS)) return;
    const int first = c->result_count;
    make_gradients(c, &c->grads);
    if (!c->fits) return;
    err = (mha_error){0};
    status = mha_attn_backward(plan, &c->args, &c->grads, workspace, bytes, &err);
    check_ending(c, status, &err, first);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    call c = {.bytes = bytes, .end = bytes + n, .desc.size = sizeof c.desc, .args.size = sizeof c.args};
    mha_attn_plan *plan = NULL;
    mha_error err = {0};
    char text[200];
    guarded_reset();
    mha_ctx *ctx = context(&c);
    c.numbers = rng_make((uint64_t)below(&c, 256), 0);
    make_sizes(&c, &c.desc);
    make_types(&c, &c.desc);
    make_masks(&c, &c.desc);
    c.args.dropout_seed = (uint64_t)below(&c, 256);
    const mha_status status = mha_attn_plan_create(ctx, &c.desc, &plan, &err);
    fuzz_check((status == MHA_OK) == (plan != NULL), "plan must be set only on success");
    check_ending(&c, status, &err, 0);
    if (!plan) return 0;
    mha_attn_plan_describe(plan, (int)below(&c, 2), text, (size_t)below(&c, sizeof text + 1));
    fill_defaults(&c);
    run(&c, plan);
    mha_attn_plan_free(plan);
    return 0;
}
