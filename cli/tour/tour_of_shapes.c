/* tour_of_shapes.c - tours of reshaping as in published code, with strides instead of copies: one product for all
 * heads, and a row split into heads. */
#include <string.h>

#include "tour/tours.h"

/* ---- one product for all heads ---- */

enum { PAIR = 2, ROWS = 3, COLUMNS = 4 };

static const float a[PAIR * ROWS * COLUMNS] = {0.1855f, 0.8812f, 1.3211f, 0.8098f, 0.3116f, 0.9549f, 1.6063f, 1.1493f,
                                               0.3395f, 0.9652f, 1.6530f, 1.2084f, 0.3129f, 0.8747f, 1.5012f, 1.0955f,
                                               0.2865f, 0.7897f, 1.4100f, 1.0398f, 0.2990f, 0.8040f, 1.4025f, 1.0361f};

/* Computes y = head head^T with a linear layer whose weight is its input. */
static mha_status square(tour *t, const float *head, float *y)
{
    mha_linear *linear = NULL;
    mha_status status = mha_linear_create(t->ctx, COLUMNS, ROWS, head, NULL, &linear, &t->error);
    if (status == MHA_OK) status = mha_linear_forward(linear, head, ROWS, y, &t->error);
    mha_linear_free(linear);
    return status;
}

void tour_batched_product(tour *t)
{
    float one[ROWS * ROWS], other[ROWS * ROWS], all[PAIR * ROWS * ROWS], out[PAIR * ROWS * COLUMNS];
    tour_say(t, "Two heads of three rows", NULL,
             "The tensor is [1, 2, 3, 4]: one sequence, two heads, three words, four features each.");
    tour_color_heads(tour_show(t, "a", a, TOUR_SHAPE(1, PAIR, ROWS, COLUMNS)), PAIR, (int64_t)ROWS * COLUMNS);

    const float *second = a + (ptrdiff_t)(ROWS * COLUMNS);
    tour_say(t, "Slices", "pointer arithmetic, no copy",
             "The slices are a[0, 0] and a[0, 1]: head 1 starts 12 elements after head 0. Each slice is a matrix [3, "
             "4].");
    tour_color_heads(tour_show(t, "first_head", a, TOUR_SHAPE(ROWS, COLUMNS)), 1, (int64_t)ROWS * COLUMNS);
    tour_color_heads(tour_show(t, "second_head", second, TOUR_SHAPE(ROWS, COLUMNS)), PAIR, (int64_t)ROWS * COLUMNS);

    TOUR_TRY(square(t, a, one));
    TOUR_TRY(square(t, second, other));
    tour_say(t, "Head by head", "mha_linear_create, mha_linear_forward",
             "Each head is multiplied by its transpose: [3, 4] times [4, 3] is [3, 3], the dot product of every pair "
             "of rows.");
    tour_show(t, "first_head_res", one, TOUR_SHAPE(ROWS, ROWS));
    tour_show(t, "second_head_res", other, TOUR_SHAPE(ROWS, ROWS));

    const mha_attn_desc desc = {.size = sizeof desc,
                                .batch = 1,
                                .heads = PAIR,
                                .q_len = ROWS,
                                .kv_len = ROWS,
                                .head_dim = COLUMNS,
                                .scale = 1,
                                .outputs = MHA_ATTN_SCORES};
    const mha_attn_args args = {
        .size = sizeof args, .q.data = a, .k.data = a, .v.data = a, .out.data = out, .scores.data = all};
    TOUR_TRY(mha_attention(t->ctx, &desc, &args, &t->error));
    tour_say(t, "All heads in one call", "mha_attention, .scale = 1, .scores = MHA_SCORES_RAW",
             "The operator computes the same products in one call: the last two axes are multiplied, the leading axes "
             "are batch axes. If a contains the queries and the keys, the products are the scores, [1, 2, 3, 3].");
    tour_color_heads(tour_show(t, "product", all, TOUR_SHAPE(1, PAIR, ROWS, ROWS)), PAIR, (int64_t)ROWS * ROWS);
}

/* ---- row split into heads ---- */

enum { WORDS = 4, HEADS = 2, D = 3, WIDTH = HEADS * D };

static const float rows[WORDS * WIDTH] = {0.7924f, 0.4975f, 0.5119f, 0.4034f, 0.6843f, 0.3314f, 0.9629f, 0.7819f,
                                          0.5565f, 0.5319f, 0.2773f, 0.2841f, 0.3263f, 0.7731f, 0.5472f, 0.6618f,
                                          0.3387f, 0.6278f, 0.7786f, 0.0196f, 0.0878f, 0.0646f, 0.6827f, 0.6362f};

/* Copies a tensor from one set of strides to another with the operator: every word attends only to itself, so the
 * output is v. */
static mha_status copy(tour *t, mha_cview from, mha_view to)
{
    const mha_attn_desc desc = {.size = sizeof desc,
                                .batch = 1,
                                .heads = HEADS,
                                .q_len = WORDS,
                                .kv_len = WORDS,
                                .head_dim = D,
                                .window = {.on = 1, .left = 0, .right = 0}};
    const mha_attn_args args = {.size = sizeof args, .q = from, .k = from, .v = from, .out = to};
    return mha_attention(t->ctx, &desc, &args, &t->error);
}

void tour_reshape(tour *t)
{
    float heads[WORDS * WIDTH], merged[WORDS * WIDTH];
    tour_say(t, "A row for each word", NULL,
             "The tensor [4, 6] is the output of a projection. The first three elements of a row belong to head 0, the "
             "last three to head 1. The strides are (6, 1): the next word is 6 elements further, the next feature 1.");
    tour_color_heads(tour_show(t, "a", rows, TOUR_SHAPE(WORDS, WIDTH)), HEADS, D);

    tour_say(t, "view(4, 2, 3)", "mha_cview, .stride",
             "The row of six is viewed as two rows of three: word, head, feature, with strides (6, 3, 1). "
             "Memory is unchanged.");
    tour_color_heads(tour_show(t, "view", rows, TOUR_SHAPE(WORDS, HEADS, D)), HEADS, D);

    const int64_t by_word[4] = {0, D, WIDTH, 1}; /* strides of batch, head, word, feature */
    const mha_cview as_rows = {rows, {by_word[0], by_word[1], by_word[2], by_word[3]}};
    const mha_view in_heads = {heads, {WORDS * WIDTH, WORDS * D, D, 1}};
    TOUR_TRY(copy(t, as_rows, in_heads));
    tour_say(t, "transpose(0, 1)", "mha_attention, .q = {a, {0, 3, 6, 1}}",
             "The head axis is moved to the front: head, word, feature, with strides (3, 6, 1). Memory is still "
             "unchanged, but each head is now a matrix [4, 3], as if the columns had been split. The operator accepts "
             "such strides. The printed values are the values that it has read: if every word attends only to itself, "
             "the output equals the values.");
    tour_color_heads(tour_show(t, "heads", heads, TOUR_SHAPE(HEADS, WORDS, D)), HEADS, (int64_t)WORDS * D);

    const mha_view as_words = {merged, {by_word[0], by_word[1], by_word[2], by_word[3]}};
    TOUR_TRY(copy(t, (mha_cview){heads, {WORDS * WIDTH, WORDS * D, D, 1}}, as_words));
    tour_say(t, "Merged heads", "mha_attention, .out = {merged, {0, 3, 6, 1}}",
             "After attention, the heads are concatenated again. The operator also writes through strides, so its "
             "output is already [4, 6]; it is %s the input.",
             memcmp(merged, rows, sizeof rows) == 0 ? "bitwise identical to" : "different from");
    tour_color_heads(tour_show(t, "merged", merged, TOUR_SHAPE(WORDS, WIDTH)), HEADS, D);
}
