/* problem_random.c - implements the random problems of problem.h. */
#include "support/attn/paged.h"
#include "support/attn/problem.h"
#include "support/reference/half.h"

/* Returns a random length, often near a multiple of the size of vectors, tiles or chunks. */
static int64_t random_length(rng *r)
{
    static const int64_t edges[] = {0,  1,  2,   3,   7,   8,   15,  16,  17,   31,   32,   33,   63,
                                    64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025, 2049, 5000};
    if (rng_chance(r, 0.03)) return rng_range(r, 300, 4000);
    return rng_chance(r, 0.5) ? edges[rng_range(r, 0, sizeof edges / sizeof *edges - 1)] : rng_range(r, 0, 70);
}

static int64_t random_width(rng *r)
{
    static const int64_t usual[] = {1, 7, 8, 16, 32, 40, 64, 80, 96, 128};
    return rng_chance(r, 0.6) ? usual[rng_range(r, 0, 9)] : rng_range(r, 1, 36);
}

static void random_sizes(mha_attn_desc *d, rng *r)
{
    d->batch = rng_range(r, 1, 3);
    int64_t kv_heads = rng_range(r, 1, 3);
    d->heads = kv_heads * rng_range(r, 1, 3);
    d->kv_heads = kv_heads == d->heads && rng_chance(r, 0.5) ? 0 : kv_heads;
    d->q_len = random_length(r);
    d->kv_len = rng_chance(r, 0.3) ? d->q_len : random_length(r);
    d->head_dim = random_width(r);
    d->v_head_dim = rng_chance(r, 0.7) ? 0 : random_width(r);
    /* limits the computation of a case by reducing the batch size, then the number of rows */
    while (d->batch * d->heads * d->q_len * d->kv_len * d->head_dim > 400000 && d->batch > 1)
        d->batch--;
    while (d->batch * d->heads * d->q_len * d->kv_len * d->head_dim > 400000 && d->q_len > 1)
        d->q_len = (d->q_len + 1) / 2;
}

static void random_mask(mha_attn_desc *d, rng *r)
{
    d->causal = rng_chance(r, 0.4);
    if (rng_chance(r, 0.25)) d->window = (mha_window){1, rng_range(r, -1, 40), rng_range(r, -1, 40)};
    if (rng_chance(r, 0.3)) d->inputs |= MHA_ATTN_KEEP;
    if (rng_chance(r, 0.3)) d->inputs |= MHA_ATTN_BIAS;
    if (rng_chance(r, 0.2)) d->inputs |= MHA_ATTN_Q_LENS;
    if (rng_chance(r, 0.3)) d->inputs |= MHA_ATTN_KV_LENS;
    if ((d->inputs & MHA_ATTN_KEEP) && rng_chance(r, 0.2) && d->kv_len > 1) d->keep_keys = rng_range(r, 1, d->kv_len);
    bool moved = d->q_len != d->kv_len || (d->inputs & (MHA_ATTN_Q_LENS | MHA_ATTN_KV_LENS));
    if (rng_chance(r, 0.15)) d->dropout = rng_chance(r, 0.1) ? 1 : 0.9 * rng_uniform(r);
    if (rng_chance(r, d->dropout > 0 ? 0.3 : 0.02)) d->inputs |= MHA_ATTN_DROPOUT_KEEP;
    if (rng_chance(r, 0.2)) d->inputs |= MHA_ATTN_PREFIX_LENS;
    if (rng_chance(r, 0.1)) {
        d->inputs |= MHA_ATTN_HEAD_LIST;
        d->listed_heads = rng_range(r, 1, d->heads);
    }
    if (rng_chance(r, 0.2)) {
        d->inputs |= MHA_ATTN_BLOCK_KEEP;
        d->block_q = rng_range(r, 1, 40);
        d->block_k = rng_chance(r, 0.5) ? rng_range(r, 1, 12) : rng_range(r, 13, 150);
    }
    if (rng_chance(r, 0.2)) d->inputs |= MHA_ATTN_SLOPES;
    if (rng_chance(r, 0.2)) d->inputs |= MHA_ATTN_SINKS;
    if (rng_chance(r, 0.2)) d->inputs |= MHA_ATTN_GATES;
    bool matters = d->causal || d->window.on || (d->inputs & MHA_ATTN_SLOPES);
    d->align = (mha_align)rng_range(r, matters && moved ? 1 : 0, 3);
}

static problem_layouts random_layouts(rng *r)
{
    problem_layouts at = {.q = tensor_layout_random(r, true), .k = tensor_layout_random(r, true)};
    at.v = tensor_layout_random(r, true);
    at.out = tensor_layout_random(r, false);
    at.lse = tensor_layout_random(r, false);
    at.probs = tensor_layout_random(r, false);
    at.scores = tensor_layout_random(r, false);
    at.keep = tensor_layout_random(r, true);
    at.bias = tensor_layout_random(r, true);
    at.slopes = tensor_layout_random(r, true);
    at.sinks = tensor_layout_random(r, true);
    at.gates = tensor_layout_random(r, true);
    at.block_keep = tensor_layout_random(r, true);
    at.dropout_keep = tensor_layout_random(r, true);
    at.dropout_keep.unspecified = false;
    /* zeros in all strides would broadcast along all axes */
    at.block_keep.unspecified = at.keep.unspecified = at.bias.unspecified = false;
    at.slopes.unspecified = at.sinks.unspecified = at.gates.unspecified = false;
    return at;
}

/* With probability 0.2, moves the keys into pages and drops a few pages, using a separate random stream. */
static void random_pages(problem *p, uint64_t seed, uint64_t number)
{
    rng r = rng_make(seed, number ^ UINT64_C(1) << 63);
    if (!rng_chance(&r, 0.2)) return;
    paged_make(p, INT64_C(16) << rng_range(&r, 0, 4), rng_next(&r));
    for (int64_t n = 0; n < p->desc.batch * p->table_width; n++)
        if (p->table[n] < p->desc.pages && rng_chance(&r, 0.1)) paged_drop(p, n / p->table_width, n % p->table_width);
}

static void random_types(mha_attn_desc *d, rng *r)
{
    static const mha_dtype narrow[] = {MHA_DTYPE_DEFAULT, MHA_F32, MHA_BF16, MHA_F16, MHA_Q8_0};
    if (rng_chance(r, 0.15)) {
        d->dtype = MHA_F64;
        return;
    }
    d->dtype = narrow[rng_range(r, 0, 3)];
    if (rng_chance(r, 0.3)) d->kv_dtype = narrow[rng_range(r, 1, 4)];
    if (rng_chance(r, 0.3)) d->bias_dtype = narrow[rng_range(r, 1, 3)];
}

static int64_t whole_blocks(int64_t width)
{
    return (width + Q4_ELEMENTS - 1) / Q4_ELEMENTS * Q4_ELEMENTS;
}

/* With probability 0.2, stores keys and values in f8_e4m3 or q4_0, using a separate random stream. Rows in q4_0 have
 * whole blocks; they are used only in problems with few products, because the reference restores a block for each
 * element. */
static void random_small_types(mha_attn_desc *d, uint64_t seed, uint64_t number)
{
    rng r = rng_make(seed, number ^ UINT64_C(1) << 58);
    if (!rng_chance(&r, 0.2) || d->dtype == MHA_F64) return;
    d->kv_dtype = MHA_F8_E4M3;
    if (d->batch * d->heads * d->q_len * d->kv_len > 10000 || rng_chance(&r, 0.3)) return;
    d->kv_dtype = MHA_Q4_0;
    d->head_dim = whole_blocks(d->head_dim);
    d->v_head_dim = whole_blocks(d->v_head_dim);
}

/* With probability 0.25, requests statistics, mostly together with the probabilities, using a separate random
 * stream. */
static void random_statistics(mha_attn_desc *d, problem_layouts *at, uint64_t seed, uint64_t number)
{
    rng r = rng_make(seed, number ^ UINT64_C(1) << 62);
    if (!rng_chance(&r, 0.25)) return;
    d->outputs |= MHA_ATTN_STATS;
    if (rng_chance(&r, 0.8)) d->outputs |= MHA_ATTN_PROBS;
    d->top_keys = rng_chance(&r, 0.5) ? 0 : rng_range(&r, 1, 32);
    at->stats = tensor_layout_random(&r, false);
}

/* With probability 0.03, makes the heads of a problem with few keys up to 1200 elements wide, using a separate random
 * stream. */
static void random_wide(mha_attn_desc *d, uint64_t seed, uint64_t number)
{
    rng r = rng_make(seed, number ^ UINT64_C(1) << 60);
    if (!rng_chance(&r, 0.03) || d->kv_len > 300) return;
    d->head_dim = rng_range(&r, 513, 1200);
    d->v_head_dim = rng_chance(&r, 0.5) ? 0 : rng_range(&r, 1, 1200);
    if (d->q_len > 40) d->q_len = 40;
}

/* With probability 0.2, adds user functions, using a separate random stream. Their positions require an alignment. */
static void random_functions(mha_attn_desc *d, uint64_t seed, uint64_t number)
{
    rng r = rng_make(seed, number ^ UINT64_C(1) << 61);
    if (!rng_chance(&r, 0.2)) return;
    d->inputs |= MHA_ATTN_FUNCTIONS;
    if (d->align == MHA_ALIGN_UNSET) d->align = (mha_align)rng_range(&r, 1, 3);
}

/* Creates a random problem with the given outputs; 0 means random outputs. */
static void random_problem(problem *p, uint32_t outputs, uint64_t seed, uint64_t number)
{
    rng r = rng_make(seed, number);
    mha_attn_desc d = {.size = sizeof d};
    random_sizes(&d, &r);
    random_wide(&d, seed, number);
    random_mask(&d, &r);
    random_functions(&d, seed, number);
    if (rng_chance(&r, 0.3)) d.scale = rng_normal(&r) * (rng_chance(&r, 0.3) ? 100 : 1);
    if (rng_chance(&r, 0.2)) d.softcap = 0.5 + 30 * rng_uniform(&r);
    if (rng_chance(&r, 0.5)) d.outputs |= MHA_ATTN_LSE;
    if (rng_chance(&r, 0.3)) d.outputs |= MHA_ATTN_PROBS;
    if (rng_chance(&r, 0.2)) {
        d.outputs |= MHA_ATTN_SCORES;
        d.scores = (mha_scores)rng_range(&r, MHA_SCORES_RAW, MHA_SCORES_PROBS);
    }
    random_types(&d, &r);
    if (!outputs) random_small_types(&d, seed, number);
    problem_layouts at = random_layouts(&r);
    random_statistics(&d, &at, seed, number);
    if (outputs) {
        if (d.kv_dtype == MHA_Q8_0) d.kv_dtype = MHA_DTYPE_DEFAULT;
        d.outputs = outputs;
        d.top_keys = 0;
        d.scores = MHA_SCORES_RAW;
    }
    problem_make(p, &d, &at, rng_next(&r));
}

void problem_random(problem *p, uint64_t seed, uint64_t number)
{
    random_problem(p, 0, seed, number);
    random_pages(p, seed, number);
}

void problem_random_for(problem *p, uint32_t outputs, uint64_t seed, uint64_t number)
{
    random_problem(p, outputs, seed, number);
}
