/* cpu_describe.c - describes a plan as sentences or as JSON. */
#include "attn/engine/cpu_engine.h"
#include "attn/forward/online_softmax.h"
#include "attn/plan/map_lists.h"
#include "attn/plan/operand_table.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A text buffer. When it is full, only `length` increases, as in snprintf. */
typedef struct text {
    char *to;
    size_t capacity, length;
} text;

static __attribute__((format(printf, 2, 3))) void append(text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const bool room = t->length < t->capacity;
    const int n = vsnprintf(room ? t->to + t->length : NULL, room ? t->capacity - t->length : 0, format, args);
    va_end(args);
    t->length += n > 0 ? (size_t)n : 0;
}

/* A code path that was not chosen, and the reason. */
typedef struct path {
    const char *name, *reason;
} path;

static const char *why_not(const mha_attn_plan *plan, mha__isa isa)
{
    if (plan->desc.dtype == MHA_F64) return "f64 runs on the scalar kernels only";
    if (!mha__cpu_has(isa)) return "this CPU or operating system does not support it";
    if (!mha__cpu_favors(isa)) return "not faster than avx512 on this CPU; used only on request";
    return "newer than the context allows";
}

static const char *scores_name(const mha_attn_desc *d)
{
    static const char *const names[] = {"raw", "softcapped", "biased", "probs"};
    return names[d->scores];
}

static const char *why_not_pairs(const mha_attn_plan *plan)
{
    return plan->kernels->pairs ? "q, k and v are not all bf16" : "this ISA has no bf16 products";
}

/* Returns a phrase that names the tiles that use the decode kernels; NULL if the plan does not use these kernels. */
static const char *decode_tiles(const mha_attn_plan *plan)
{
    const int64_t longest = plan->packed ? plan->desc.max_q_len : plan->rows, last = plan->rows % plan->tile_rows;
    if (plan->decode_rows == 0) return NULL;
    if (longest <= plan->decode_rows) return "all";
    if (plan->packed) return "the tiles of short sequences";
    return last >= 1 && last <= plan->decode_rows ? "the last tile of each head" : "none";
}

static bool is_decode(const mha_attn_plan *plan)
{
    return plan->decode_rows > 0 && strcmp(decode_tiles(plan), "all") == 0;
}

static const char *kernel_name(const mha_attn_plan *plan)
{
    return plan->single_block ? "fwd_single_block" : is_decode(plan) ? "fwd_decode" : "fwd_tiled";
}

static const char *why_not_decode(const mha_attn_plan *plan)
{
    if (plan->decode_rows > 0) return "too many rows in a tile";
    if (plan->single_block) return "fwd_single_block handles all tiles";
    return plan->pairs ? "bf16 pairs are multiplied in tiles" : "this ISA has no decode kernels";
}

/* Returns the properties of arguments that fwd_decode requires. They are not known from the description alone. */
static const char *decode_needs(const mha_attn_plan *plan)
{
    return plan->pairs ? "stride[3] = 1 of k and v, and blocks without dropped pages" : "stride[3] = 1 of k and v";
}

static const char decode_otherwise[] = "fwd_tiled, which takes 2 to 14 times as long";

/* Returns the name of the type that the kernels multiply. */
static const char *products(const mha_attn_plan *plan)
{
    return plan->pairs ? "pairs of bf16" : plan->desc.dtype == MHA_F64 ? "f64" : "f32";
}

static const char *weights(const mha_attn_plan *plan)
{
    return mha_dtype_name(plan->weights);
}

enum { PATHS = MHA__ISAS + 6 };

static int refused_paths(const mha_attn_plan *plan, path paths[PATHS])
{
    int n = 0;
    for (int isa = MHA__ISAS - 1; strcmp(mha__isa_name((mha__isa)isa), plan->kernels->isa) != 0; isa--)
        paths[n++] = (path){mha__isa_name((mha__isa)isa), why_not(plan, (mha__isa)isa)};
    if (!plan->pairs) paths[n++] = (path){"products of bf16 pairs", why_not_pairs(plan)};
    if (!plan->single_block) paths[n++] = (path){"fwd_single_block", mha__fwd_why_not_single_block(plan)};
    if (!is_decode(plan)) paths[n++] = (path){"fwd_decode", why_not_decode(plan)};
    if (!plan->folded) paths[n++] = (path){"heads of a group as one tile", plan->unfolded};
    if (plan->parts == 1)
        paths[n++] = (path){"split-KV", plan->desc.kv_len <= MHA_ATTN_CHUNK ? "too few keys" : "enough tiles or rows"};
    if (plan->workers == 1)
        paths[n++] = (path){"threads", mha__threads(plan->ctx) == 1 ? "the context has one thread"
                                                                    : "too little work for several threads"};
    return n;
}

/* Returns the number of elements that a call reads or writes along an axis: only the listed heads, and each key once,
 * even if keys are in pages. */
static double used_elements(const mha_attn_plan *plan, mha__dimension dimension)
{
    const mha__dimension used = dimension == MHA__DIM_HEADS         ? MHA__DIM_LISTED_HEADS
                                : dimension == MHA__DIM_STORES      ? MHA__DIM_KEY_BATCH
                                : dimension == MHA__DIM_STORED_KEYS ? MHA__DIM_KV_LEN
                                                                    : dimension;
    return (double)mha__dimension_of(plan, used);
}

static double row_bytes(const mha_attn_plan *plan, const mha__operand_row *row)
{
    if (row->element == MHA__OF_NONE || !mha__operand_is_used(&plan->desc, row)) return 0;
    double bytes = (double)mha__element_bytes(plan, row->element);
    for (int n = 0; n < 4; n++)
        bytes *= used_elements(plan, row->shape[n]);
    return bytes;
}

/* Returns the bytes read and written, each byte counted once. Of the inputs, only those with four axes are counted: q,
 * k, v, masks and bias. Strides are known only for a call, so broadcasting is ignored. */
static double bytes_of(const mha_attn_plan *plan)
{
    double bytes = 0;
    for (int n = 0; n < MHA__INPUT_ROWS; n++)
        if (mha__input_rows[n].dims == 4) bytes += row_bytes(plan, &mha__input_rows[n]);
    for (int n = 0; n < MHA__OUTPUT_ROWS; n++)
        bytes += row_bytes(plan, &mha__output_rows[n]);
    for (int n = 0; n < MHA__STATS_ROWS && (plan->desc.outputs & MHA_ATTN_STATS); n++)
        bytes += row_bytes(plan, &mha__stats_rows[n]);
    return bytes;
}

/* Returns the plural suffix of a noun. */
static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

static void sentences_of_outputs(text *t, const mha_attn_desc *d)
{
    int64_t map[4];
    mha__maps_shape(d, map);
    const bool again = d->outputs & (MHA_ATTN_PROBS | MHA_ATTN_STATS | MHA_ATTN_SCORES | MHA_ATTN_ROWS);
    append(t, "written: out");
    for (int n = 1; n < MHA__OUTPUT_ROWS; n++) {
        const mha__operand_row *row = &mha__output_rows[n];
        if (!mha__operand_is_used(d, row)) continue;
        append(t, ", %s", row->name);
        if (row->flag == MHA_ATTN_SCORES) append(t, " (%s)", scores_name(d));
        if (row->flag == MHA_ATTN_STATS && d->top_keys) append(t, " (%" PRId64 " top keys)", d->top_keys);
        if (row->shape[1] == MHA__DIM_MAPPED_HEADS)
            append(t, " [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "]", map[0], map[1], map[2], map[3]);
    }
    append(t, again ? "; the scores of these rows are computed a second time\n" : "\n");
}

/* Describes work that the description of a call does not show: operands that are copied, because the call rotates them
 * or the backward pass gathers them from pages, and the rotation of blocks in q4_0. */
static void copies_sentence(text *t, const mha_attn_plan *plan)
{
    const mha__staging *s = &plan->staging;
    if (s->k + s->v + s->q > 0)
        append(t, "copies in the workspace: %zu bytes of k; backward also %zu bytes of v and %zu bytes of q\n", s->k,
               s->v, s->q);
    if (plan->rotated)
        append(t, "rotation: k and v are stored in rotated blocks, so queries and results are rotated as well\n");
}

static void copies_object(text *t, const mha_attn_plan *plan)
{
    const mha__staging *s = &plan->staging;
    append(t, "\"copies\": {\"k\": %zu, \"v\": %zu, \"q\": %zu}, \"rotated\": %s, ", s->k, s->v, s->q,
           plan->rotated ? "true" : "false");
}

/* Returns the number of operations of the backward pass, excluding those for dbias. */
static double backward_flops(const mha_attn_plan *plan)
{
    const mha_attn_desc *d = &plan->desc;
    const double pairs = mha__plan_flops(plan) / (double)(d->head_dim + d->v_head_dim);
    return pairs * (double)(3 * d->head_dim + 2 * d->v_head_dim);
}

static void backward_sentence(text *t, const mha_attn_plan *plan)
{
    const mha__bwd_plan *w = &plan->bwd;
    if (!(plan->desc.outputs & MHA_ATTN_GRADS)) return;
    append(t,
           "backward: bwd_tiled, %" PRId64 " task%s, rows of a head group in %" PRId64
           " part%s, on up to %d thread%s, %.4g operations\n",
           w->tasks, plural(w->tasks), w->parts, plural(w->parts), w->workers, plural(w->workers),
           backward_flops(plan));
}

static void backward_object(text *t, const mha_attn_plan *plan)
{
    const mha__bwd_plan *w = &plan->bwd;
    if (!(plan->desc.outputs & MHA_ATTN_GRADS)) {
        append(t, "\"backward\": null, ");
        return;
    }
    append(t,
           "\"backward\": {\"kernel\": \"bwd_tiled\", \"tasks\": %" PRId64 ", \"parts\": %" PRId64
           ", \"threads\": %d, ",
           w->tasks, w->parts, w->workers);
    append(t, "\"flops\": %.0f}, ", backward_flops(plan));
}

static void sentences(text *t, const mha_attn_plan *plan, const path *paths, int count)
{
    append(t, "kernel: %s, %s (keys and values %s), %s\n", kernel_name(plan), mha_dtype_name(plan->desc.dtype),
           mha_dtype_name(plan->desc.kv_dtype), plan->kernels->isa);
    if (plan->decode_rows > 0 && strcmp(decode_tiles(plan), "none") != 0)
        append(t, "decode: fwd_decode computes tiles of up to %d rows (here %s) and requires %s; otherwise %s\n",
               plan->decode_rows, decode_tiles(plan), decode_needs(plan), decode_otherwise);
    append(t, "products: %s, weights rounded to %s, sums in %s\n", products(plan), weights(plan),
           plan->desc.dtype == MHA_F64 ? "f64" : "f32");
    append(t, "tiles: %" PRId64 " queries by %d keys, registers %d by %d, partial results merged every %d keys\n",
           plan->tile_rows, MHA__KEY_BLOCK, plan->kernels->mr, plan->kernels->nr, MHA_ATTN_CHUNK);
    append(t, "work: %" PRId64 " tile%s%s in %" PRId64 " part%s of the keys on up to %d thread%s\n", plan->tasks,
           plural(plan->tasks), plan->folded ? ", each with all heads of a group," : "", plan->parts,
           plural(plan->parts), plan->workers, plural(plan->workers));
    append(t, "workspace: %zu bytes\n", mha_attn_plan_workspace(plan));
    append(t, "cost: %.4g operations if nothing is masked, %.4g bytes read and written\n", mha__plan_flops(plan),
           bytes_of(plan));
    copies_sentence(t, plan);
    sentences_of_outputs(t, &plan->desc);
    backward_sentence(t, plan);
    for (int i = 0; i < count; i++)
        append(t, "not used: %s: %s\n", paths[i].name, paths[i].reason);
}

static void json_of_outputs(text *t, const mha_attn_desc *d)
{
    int64_t map[4];
    mha__maps_shape(d, map);
    append(t, "\"outputs\": {\"out\": true");
    for (int n = 1; n < MHA__OUTPUT_ROWS; n++) {
        const mha__operand_row *row = &mha__output_rows[n];
        if (!mha__operand_is_used(d, row)) continue;
        append(t, ", \"%s\": ", row->name);
        if (row->shape[1] == MHA__DIM_MAPPED_HEADS)
            append(t, "[%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "]", map[0], map[1], map[2], map[3]);
        else
            append(t, "true");
    }
    if (d->outputs & MHA_ATTN_SCORES) append(t, ", \"stage\": \"%s\"", scores_name(d));
    if (d->outputs & MHA_ATTN_STATS) append(t, ", \"top_keys\": %" PRId64, d->top_keys);
    append(t, "}, ");
}

static void json_object(text *t, const mha_attn_plan *plan, const path *paths, int count)
{
    append(t, "{\"kernel\": \"%s\", ", kernel_name(plan));
    if (plan->decode_rows > 0)
        append(t, "\"decode\": {\"rows\": %d, \"tiles\": \"%s\", \"needs\": \"%s\", \"otherwise\": \"%s\"}, ",
               plan->decode_rows, decode_tiles(plan), decode_needs(plan), decode_otherwise);
    else
        append(t, "\"decode\": null, ");
    append(t, "\"dtype\": \"%s\", \"kv_dtype\": \"%s\", \"isa\": \"%s\", ", mha_dtype_name(plan->desc.dtype),
           mha_dtype_name(plan->desc.kv_dtype), plan->kernels->isa);
    append(t, "\"products\": \"%s\", \"weights\": \"%s\", ", products(plan), weights(plan));
    append(t,
           "\"tile_q\": %" PRId64 ", \"tile_k\": %d, \"register_rows\": %d, \"register_columns\": %d, \"chunk\": %d, ",
           plan->tile_rows, MHA__KEY_BLOCK, plan->kernels->mr, plan->kernels->nr, MHA_ATTN_CHUNK);
    append(t, "\"tasks\": %" PRId64 ", \"folded\": %s, \"parts\": %" PRId64 ", \"threads\": %d, \"workspace\": %zu, ",
           plan->tasks, plan->folded ? "true" : "false", plan->parts, plan->workers, mha_attn_plan_workspace(plan));
    append(t, "\"flops\": %.0f, \"bytes\": %.0f, ", mha__plan_flops(plan), bytes_of(plan));
    copies_object(t, plan);
    json_of_outputs(t, &plan->desc);
    backward_object(t, plan);
    append(t, "\"refused\": [");
    for (int i = 0; i < count; i++)
        append(t, "%s{\"path\": \"%s\", \"reason\": \"%s\"}", i ? ", " : "", paths[i].name, paths[i].reason);
    append(t, "]}");
}

size_t mha__cpu_describe(const mha_attn_plan *plan, int json, char *to, size_t capacity)
{
    text t = {to, to ? capacity : 0, 0};
    path paths[PATHS];
    const int count = refused_paths(plan, paths);
    if (json)
        json_object(&t, plan, paths, count);
    else
        sentences(&t, plan, paths, count);
    return t.length;
}
