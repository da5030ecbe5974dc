/* tour_of_shapes.c - tours of reshaping as in published code, with strides instead of copies: one product for all
 * heads, and a row split into heads. */
#include "tour/tour_choice.h"
#include "tour/tours.h"
#include <string.h>

enum { SEED = 123 };

/* Returns true if the tensor is sampled, instead of being that of the walk-through. */
static bool samples(const tour *t)
{
    return t->choice.seeded || t->choice.width || t->choice.heads;
}

/* Returns a copy of `published`, or `count` values sampled from [0, 1). */
static float *values_of(tour *t, const float *published, int64_t count)
{
    float *values = tour_floats(t, count);
    mha_rng rng;
    mha_rng_manual_seed(&rng, tour_seed(t, SEED));
    if (!values) return NULL;
    if (!samples(t))
        memcpy(values, published, (size_t)count * sizeof *values);
    else if (mha_rng_rand(&rng, values, count, &t->error) != MHA_OK)
        return NULL;
    return values;
}

/* Returns how the values were sampled; "" for those of the walk-through. */
static const char *origin(tour *t)
{
    if (!samples(t)) return "";
    return tour_format(t, " It is sampled from [0, 1), like torch.rand from seed %llu.",
                       (unsigned long long)tour_seed(t, SEED));
}

/* ---- one product for all heads ---- */

enum { PAIR = 2, ROWS = 3, COLUMNS = 4 };

static const float published_heads[PAIR * ROWS * COLUMNS] = {
    0.1855f, 0.8812f, 1.3211f, 0.8098f, 0.3116f, 0.9549f, 1.6063f, 1.1493f, 0.3395f, 0.9652f, 1.6530f, 1.2084f,
    0.3129f, 0.8747f, 1.5012f, 1.0955f, 0.2865f, 0.7897f, 1.4100f, 1.0398f, 0.2990f, 0.8040f, 1.4025f, 1.0361f};

/* Computes y = head head^T with a linear layer whose weight is its input. */
static mha_status square(tour *t, const float *head, int64_t columns, float *y)
{
    const mha_matrix matrix = {.weight = head, .out = ROWS};
    return tour_multiply(t, &matrix, columns, head, ROWS, y);
}

static void show_slices(tour *t, const float *a, int64_t heads, int64_t columns)
{
    const int64_t each = ROWS * columns;
    tour_say(t, heads == 2 ? "Two heads of three rows" : "Heads of three rows", NULL,
             "The tensor is %s: one sequence, %s, three words, %s each.%s", TOUR_DIMS(t, 1, heads, ROWS, columns),
             tour_many(t, heads, "head"), tour_many(t, columns, "feature"), origin(t));
    tour_color_heads(tour_show(t, "a", a, TOUR_SHAPE(1, heads, ROWS, columns)), heads, each);

    tour_say(t, "Slices", "pointer arithmetic, no copy",
             "The slices are a[0, 0] and a[0, 1]: head 1 starts %lld elements after head 0. Each slice is a matrix %s.",
             (long long)each, TOUR_DIMS(t, ROWS, columns));
    tour_color_heads(tour_show(t, "first_head", a, TOUR_SHAPE(ROWS, columns)), 1, each);
    tour_color_heads(tour_show(t, "second_head", a + each, TOUR_SHAPE(ROWS, columns)), heads, each);
}

static void show_head_by_head(tour *t, const float *a, int64_t columns)
{
    float one[ROWS * ROWS], other[ROWS * ROWS];
    TOUR_TRY(square(t, a, columns, one));
    TOUR_TRY(square(t, a + ROWS * columns, columns, other));
    tour_say(t, "Head by head", "mha_linear_create, mha_linear_forward",
             "Each head is multiplied by its transpose: %s times %s is [3, 3], the dot product of every pair "
             "of rows.",
             TOUR_DIMS(t, ROWS, columns), TOUR_DIMS(t, columns, ROWS));
    tour_show(t, "first_head_res", one, TOUR_SHAPE(ROWS, ROWS));
    tour_show(t, "second_head_res", other, TOUR_SHAPE(ROWS, ROWS));
}

void tour_batched_product(tour *t)
{
    const int64_t heads = tour_heads(t, PAIR), width = tour_width(t, heads * COLUMNS), columns = width / heads;
    if (heads < PAIR) tour_fail(t, MHA_ERR_ARG, "the tour must have at least two heads (got %lld)", (long long)heads);
    TOUR_TRY(t->error.status);
    TOUR_TRY(tour_check_heads(t, width, heads));
    const float *a = values_of(t, published_heads, heads * ROWS * columns);
    float *all = tour_floats(t, heads * ROWS * ROWS), *out = tour_floats(t, heads * ROWS * columns);
    TOUR_TRY(t->error.status);
    show_slices(t, a, heads, columns);
    show_head_by_head(t, a, columns);

    const mha_attn_desc desc = {.size = sizeof desc,
                                .batch = 1,
                                .heads = heads,
                                .q_len = ROWS,
                                .kv_len = ROWS,
                                .head_dim = columns,
                                .scale = 1,
                                .outputs = MHA_ATTN_SCORES};
    const mha_attn_args args = {
        .size = sizeof args, .q.data = a, .k.data = a, .v.data = a, .out.data = out, .scores.data = all};
    TOUR_TRY(t->error.status);
    TOUR_TRY(mha_attention(t->ctx, &desc, &args, &t->error));
    tour_say(t, "All heads in one call", "mha_attention, .scale = 1, .scores = MHA_SCORES_RAW",
             "The operator computes the same products in one call: the last two axes are multiplied, the leading axes "
             "are batch axes. If a contains the queries and the keys, the products are the scores, %s.",
             TOUR_DIMS(t, 1, heads, ROWS, ROWS));
    tour_color_heads(tour_show(t, "product", all, TOUR_SHAPE(1, heads, ROWS, ROWS)), heads, (int64_t)ROWS * ROWS);
}

/* ---- row split into heads ---- */

enum { WORDS = 4, SPLIT_HEADS = 2, SPLIT_WIDTH = 6 };

static const float published_rows[WORDS * SPLIT_WIDTH] = {
    0.7924f, 0.4975f, 0.5119f, 0.4034f, 0.6843f, 0.3314f, 0.9629f, 0.7819f, 0.5565f, 0.5319f, 0.2773f, 0.2841f,
    0.3263f, 0.7731f, 0.5472f, 0.6618f, 0.3387f, 0.6278f, 0.7786f, 0.0196f, 0.0878f, 0.0646f, 0.6827f, 0.6362f};

/* The rows, and their strides. */
typedef struct split_rows {
    int64_t heads, width, D; /* D: width of a head */
    const float *a;          /* [WORDS, width] */
} split_rows;

static mha_cview by_word(const split_rows *r)
{
    return (mha_cview){r->a, {0, r->D, r->width, 1}}; /* strides of batch, head, word, feature */
}

static mha_cview by_head(const split_rows *r, const float *heads)
{
    return (mha_cview){heads, {WORDS * r->width, WORDS * r->D, r->D, 1}};
}

/* Copies a tensor from one set of strides to another with the operator: every word attends only to itself, so the
 * output is v. */
static mha_status copy(tour *t, const split_rows *r, mha_cview from, float *to, const int64_t stride[4])
{
    const mha_attn_desc desc = {.size = sizeof desc,
                                .batch = 1,
                                .heads = r->heads,
                                .q_len = WORDS,
                                .kv_len = WORDS,
                                .head_dim = r->D,
                                .window = {.on = 1, .left = 0, .right = 0}};
    const mha_attn_args args = {.size = sizeof args,
                                .q = from,
                                .k = from,
                                .v = from,
                                .out = {to, {stride[0], stride[1], stride[2], stride[3]}}};
    return mha_attention(t->ctx, &desc, &args, &t->error);
}

static void show_row(tour *t, const split_rows *r)
{
    const long long D = (long long)r->D, width = (long long)r->width;
    const bool two = r->heads == 2;
    tour_say(t, "A row for each word", NULL,
             "The tensor %s is the output of a projection.%s The first %s of a row belong to head 0, the %s %s to head "
             "1%s. The strides are (%lld, 1): the next word is %lld elements further, the next feature 1.",
             TOUR_DIMS(t, WORDS, r->width), origin(t), tour_many(t, r->D, "element"), two ? "last" : "next",
             tour_count_word(t, r->D), two ? "" : ", and so on", width, width);
    tour_color_heads(tour_show(t, "a", r->a, TOUR_SHAPE(WORDS, r->width)), r->heads, r->D);

    tour_say(t, tour_format(t, "view(4, %lld, %lld)", (long long)r->heads, D), "mha_cview, .stride",
             "The row of %s is viewed as %s of %s: word, head, feature, with strides (%lld, %lld, 1). "
             "Memory is unchanged.",
             tour_count_word(t, r->width), tour_many(t, r->heads, "row"), tour_count_word(t, r->D), width, D);
    tour_color_heads(tour_show(t, "view", r->a, TOUR_SHAPE(WORDS, r->heads, r->D)), r->heads, r->D);
}

static void show_moved(tour *t, const split_rows *r, float *heads, float *merged)
{
    const long long D = (long long)r->D, width = (long long)r->width;
    TOUR_TRY(copy(t, r, by_word(r), heads, by_head(r, heads).stride));
    tour_say(t, "transpose(0, 1)", tour_format(t, "mha_attention, .q = {a, {0, %lld, %lld, 1}}", D, width),
             "The head axis is moved to the front: head, word, feature, with strides (%lld, %lld, 1). Memory is still "
             "unchanged, but each head is now a matrix %s, as if the columns had been split. The operator accepts "
             "such strides. The printed values are the values that it has read: if every word attends only to itself, "
             "the output equals the values.",
             D, width, TOUR_DIMS(t, WORDS, r->D));
    tour_color_heads(tour_show(t, "heads", heads, TOUR_SHAPE(r->heads, WORDS, r->D)), r->heads, WORDS * r->D);

    TOUR_TRY(copy(t, r, by_head(r, heads), merged, by_word(r).stride));
    tour_say(t, "Merged heads", tour_format(t, "mha_attention, .out = {merged, {0, %lld, %lld, 1}}", D, width),
             "After attention, the heads are concatenated again. The operator also writes through strides, so its "
             "output is already %s; it is %s the input.",
             TOUR_DIMS(t, WORDS, r->width),
             memcmp(merged, r->a, (size_t)(WORDS * r->width) * sizeof *merged) == 0 ? "bitwise identical to"
                                                                                    : "different from");
    tour_color_heads(tour_show(t, "merged", merged, TOUR_SHAPE(WORDS, r->width)), r->heads, r->D);
}

void tour_reshape(tour *t)
{
    split_rows r = {.heads = tour_heads(t, SPLIT_HEADS)};
    r.width = tour_width(t, t->choice.heads ? SPLIT_WIDTH / SPLIT_HEADS * r.heads : SPLIT_WIDTH);
    r.D = r.width / r.heads;
    if (r.heads < 2) tour_fail(t, MHA_ERR_ARG, "the tour must have at least two heads (got %lld)", (long long)r.heads);
    TOUR_TRY(t->error.status);
    TOUR_TRY(tour_check_heads(t, r.width, r.heads));
    r.a = values_of(t, published_rows, WORDS * r.width);
    float *heads = tour_floats(t, WORDS * r.width), *merged = tour_floats(t, WORDS * r.width);
    TOUR_TRY(t->error.status);
    show_row(t, &r);
    show_moved(t, &r, heads, merged);
}
