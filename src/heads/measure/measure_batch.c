/* measure_batch.c - adds the rows of probabilities of one packed batch of texts to the sums of the heads, in a forward
 * pass of its own, or in one that a measurement of importance runs.
 *
 * The rows of a head are passed to the callback in order, text by text. Each text is summed in double, in the order of
 * its rows, and sums over texts are integers (head_sums.h). The result is therefore bitwise identical for every number
 * of threads, batches and processes. */
#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "heads/measure/head_measures.h"
#include <math.h>
#include <string.h>

struct mha__heads_pass {
    const mha_model *model;
    const mha_head_data *data;
    mha_heads *heads;
    mha__head_sums *sums;
    mha__head_text *text;   /* [texts of a batch] */
    mha__head_stats *stats; /* [heads of a layer] sums of the current text */
    double *received;       /* [heads of a layer, longest] weights that the positions of the current text receive */
    double *bits;           /* [longest + 1] log2 of each index */
    double *lines;          /* [heads of a layer, lines of the longest text] */
    int64_t *content;       /* [tokens + texts of a batch] */
    int32_t *listed;        /* [3, tokens] */
};

/* ---- memory ---- */

static int64_t max_heads(const mha_heads *heads)
{
    int64_t max = 0;
    for (int64_t l = 0; l < heads->layers; l++)
        max = mha__max64(max, heads->first[l + 1] - heads->first[l]);
    return max;
}

static size_t lines_doubles(const mha_heads *heads)
{
    return (size_t)max_heads(heads) * mha__head_lines_doubles(heads->longest);
}

static size_t received_doubles(const mha_heads *heads)
{
    return (size_t)max_heads(heads) * (size_t)heads->longest;
}

static mha__heads_pass *lay_out(mha__arena *arena, const mha_heads *heads, int64_t max_texts, int64_t max_tokens,
                                mha__heads_pass *own)
{
    const size_t texts = (size_t)max_texts, tokens = (size_t)max_tokens;
    mha__heads_pass *p = mha__take(arena, 1, sizeof *p);
    own->text = mha__take(arena, texts, sizeof *own->text);
    own->stats = mha__take(arena, (size_t)max_heads(heads), sizeof *own->stats);
    own->received = mha__take(arena, received_doubles(heads), sizeof *own->received);
    own->bits = mha__take(arena, (size_t)heads->longest + 1, sizeof *own->bits);
    own->lines = mha__take(arena, lines_doubles(heads), sizeof *own->lines);
    own->content = mha__take(arena, tokens + texts, sizeof *own->content);
    own->listed = mha__take(arena, tokens, 3 * sizeof *own->listed);
    return p;
}

mha_status mha__heads_pass_create(const mha_model *model, const mha_head_data *data, mha_heads *heads,
                                  mha__head_sums *sums, int64_t texts, int64_t tokens, mha__heads_pass **out,
                                  mha_error *err)
{
    mha__arena arena = {0};
    mha__heads_pass own = {.model = model, .data = data, .heads = heads, .sums = sums};
    lay_out(&arena, heads, texts, tokens, &own);
    *out = NULL;
    arena.base = arena.overflow ? NULL : mha__alloc(heads->ctx, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "a pass of head statistics");
    arena.used = 0;
    *out = lay_out(&arena, heads, texts, tokens, &own);
    **out = own;
    memset(own.lines, 0, lines_doubles(heads) * sizeof *own.lines);
    memset(own.received, 0, received_doubles(heads) * sizeof *own.received);
    memset(own.stats, 0, (size_t)max_heads(heads) * sizeof *own.stats);
    own.bits[0] = 0;
    for (int64_t n = 1; n <= heads->longest; n++)
        own.bits[n] = log2((double)n);
    return MHA_OK;
}

void mha__heads_pass_free(mha__heads_pass *pass)
{
    if (pass) mha__free(pass->heads->ctx, pass);
}

/* ---- rows of a forward pass ---- */

void mha__heads_pass_rows(void *pass, int64_t layer, const mha_attn_rows *rows)
{
    const mha__heads_pass *p = pass;
    const mha_heads *heads = p->heads;
    const mha__head_text *text = &p->text[rows->sequence];
    double *received = p->received + rows->head * heads->longest;
    double *memory = p->lines + (size_t)rows->head * mha__head_lines_doubles(heads->longest);
    const mha__head_lines lines = mha__head_lines_at(memory, text->n);
    mha__head_stats_add(&p->stats[rows->head], &lines, text, rows, received);
    if (rows->first + rows->count == text->n)
        mha__head_sums_add(p->sums, heads->first[layer] + rows->head, &p->stats[rows->head], received, text->n);
}

static int on_attention(void *user, int64_t layer, int64_t count, const float *probs)
{
    const mha__heads_pass *p = user;
    memcpy(p->heads->maps[layer], probs, (size_t)(count * p->heads->longest * p->heads->longest) * sizeof *probs);
    return 0;
}

void mha__heads_pass_text(mha__heads_pass *p, int64_t b, int64_t start, int64_t number)
{
    int64_t n;
    mha_head_data_ids(p->data, number, &n);
    p->text[b] = (mha__head_text){.n = n,
                                  .causal = mha_model_describe(p->model)->causal,
                                  .kind = mha__head_data_kinds(p->data, number),
                                  .segments = mha__head_data_segments(p->data, number),
                                  .bits = p->bits,
                                  .content = p->content + start + b,
                                  .listed = p->listed + 3 * start};
    mha__head_text_fill(&p->text[b]);
}

mha_status mha__heads_pass_run(mha__heads_pass *p, int64_t batch, mha_error *err)
{
    mha_model_input input;
    const int64_t *numbers;
    MHA__TRY(mha__head_data_any(p->data, batch, &input, &numbers, err));
    for (int64_t b = 0; b < input.batch; b++)
        mha__heads_pass_text(p, b, input.starts[b], numbers[b]);
    const mha_model_output output = {.size = sizeof output,
                                     .on_rows = mha__heads_pass_rows,
                                     .on_attention = p->heads->maps ? on_attention : NULL,
                                     .user = p};
    return mha_model_forward(p->model, &input, &output, err);
}
