/* rank_gather.c - see rank_gather.h. Each process sends the rows of its tokens, or the columns of its tokens, to all
 * other processes. */
#include "model/forward/rank_gather.h"

#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "model/forward/sequence_shard.h"
#include <string.h>

enum { WORD_ROWS = 512 };           /* embeddings per exchange */
enum { LOGITS_TOGETHER = 1 << 20 }; /* logits per exchange, at least one row */

mha_status mha__rank_check(const mha_model *m, const mha_model_input *in, const mha_model_output *out, mha_error *err)
{
    const char *name = in->gates             ? "gates"
                       : in->fills           ? "fills"
                       : in->context         ? "context"
                       : out->kept           ? "kept"
                       : out->on_attention   ? "on_attention"
                       : out->on_stats       ? "on_stats"
                       : out->on_activations ? "on_activations"
                       : out->on_rows        ? "on_rows"
                                             : NULL;
    if (!m->ranks.ranks) return MHA_OK;
    if (name)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s must be NULL for a model that is divided among ranks", name);
    return in->hidden ? MHA_OK : mha__ids_check(m, in, err);
}

static mha_model_range range_of(const mha_model *m, int rank)
{
    return mha_model_ranks_range(m->config.vocab, m->ranks.ranks, rank);
}

/* ---- embeddings ---- */

static int owner_of(const mha_model *m, int32_t id)
{
    int rank = 0;
    while (id >= range_of(m, rank).first + range_of(m, rank).count)
        rank++;
    return rank;
}

/* Sends the rows of this process's tokens, and receives the rows of the other processes. `rows` receives the rows of
 * all tokens, ordered by process; next[rank] receives the index of the first row of a process. */
static mha_status gather_words(const mha_model *m, const int32_t *ids, int64_t count, float *rows, int64_t *next,
                               mha_error *err)
{
    const int64_t width = m->config.embed_width, first = range_of(m, m->ranks.rank).first;
    int64_t counts[MHA_RANK_GROUPS] = {0}, begin = 0;
    mha__messages messages = {0};
    for (int64_t i = 0; i < count; i++)
        counts[owner_of(m, ids[i])]++;
    for (int rank = 0; rank < m->ranks.ranks; begin += counts[rank++]) {
        next[rank] = begin;
        messages.receive[rank] = rows + begin * width;
        messages.receive_bytes[rank] = (size_t)(counts[rank] * width) * sizeof *rows;
    }
    float *const own = rows + next[m->ranks.rank] * width;
    for (int64_t i = 0, n = 0; i < count; i++)
        if (owner_of(m, ids[i]) == m->ranks.rank)
            memcpy(own + n++ * width, m->words.weight + (ids[i] - first) * width, (size_t)width * sizeof *own);
    for (int rank = 0; rank < m->ranks.ranks; rank++) {
        messages.send[rank] = own;
        messages.send_bytes[rank] = (size_t)(counts[m->ranks.rank] * width) * sizeof *own;
    }
    return mha__exchange(&m->ranks, &messages, err);
}

static mha_status divided_words(const mha_model *m, const int32_t *ids, int64_t rows, float *x, mha_error *err)
{
    const int64_t width = m->config.embed_width;
    const size_t bytes = (size_t)(mha__min64(rows, WORD_ROWS) * width) * sizeof *x;
    float *gathered = mha__alloc(m->ctx, bytes + 1);
    mha_status status = gathered ? MHA_OK : mha__no_memory(err, bytes, "embeddings");
    for (int64_t at = 0; at < rows && status == MHA_OK; at += WORD_ROWS) {
        const int64_t count = mha__min64(WORD_ROWS, rows - at);
        int64_t next[MHA_RANK_GROUPS];
        status = gather_words(m, ids + at, count, gathered, next, err);
        for (int64_t i = 0; i < count && status == MHA_OK; i++)
            memcpy(x + (at + i) * width, gathered + next[owner_of(m, ids[at + i])]++ * width,
                   (size_t)width * sizeof *x);
    }
    mha__free(m->ctx, gathered);
    return status;
}

mha_status mha__words_forward(const mha_model *m, const int32_t *ids, int64_t rows, float *x, mha_error *err)
{
    return m->ranks.ranks ? divided_words(m, ids, rows, x, err)
                          : mha_embedding_forward("ids", m->words.weight, m->config.vocab, m->config.embed_width, ids,
                                                  rows, 0, x, err);
}

/* ---- logits ---- */

/* Computes the logits of `rows` rows in the order of the processes: [rows, tokens of process 0], then [rows, tokens of
 * process 1], and so on. For one row, this is the order of the vocabulary. */
static mha_status gather_logits(const mha_model *m, int64_t rows, const float *input, float *logits, mha_error *err)
{
    float *const own = logits + rows * range_of(m, m->ranks.rank).first;
    mha__messages messages = {0};
    MHA__TRY(mha_linear_forward(m->lm_head, input, rows, own, err));
    for (int rank = 0; rank < m->ranks.ranks; rank++) {
        const mha_model_range range = range_of(m, rank);
        messages.send[rank] = own;
        messages.send_bytes[rank] = (size_t)(rows * range_of(m, m->ranks.rank).count) * sizeof *own;
        messages.receive[rank] = logits + rows * range.first;
        messages.receive_bytes[rank] = (size_t)(rows * range.count) * sizeof *own;
    }
    return mha__exchange(&m->ranks, &messages, err);
}

/* Changes the order of gather_logits to [rows, vocab]. */
static void sort_logits(const mha_model *m, int64_t rows, const float *gathered, float *logits)
{
    for (int rank = 0; rank < m->ranks.ranks; rank++) {
        const mha_model_range range = range_of(m, rank);
        const float *from = gathered + rows * range.first;
        for (int64_t r = 0; r < rows; r++)
            memcpy(logits + r * m->config.vocab + range.first, from + r * range.count,
                   (size_t)range.count * sizeof *logits);
    }
}

mha_status mha__rank_logits(const mha_model *m, int64_t rows, const float *input, float *logits, mha_error *err)
{
    const int64_t vocab = m->config.vocab, max = mha__max64(1, mha__min64(rows, LOGITS_TOGETHER / vocab));
    const size_t bytes = (size_t)(max * vocab) * sizeof *logits;
    float *gathered = max > 1 ? mha__alloc(m->ctx, bytes) : NULL;
    mha_status status = max > 1 && !gathered ? mha__no_memory(err, bytes, "logits") : MHA_OK;
    for (int64_t at = 0; at < rows && status == MHA_OK; at += max) {
        const int64_t count = mha__min64(max, rows - at);
        float *const to = logits + at * vocab;
        status = gather_logits(m, count, input + at * m->config.embed_width, gathered ? gathered : to, err);
        if (status == MHA_OK && gathered) sort_logits(m, count, gathered, to);
    }
    mha__free(m->ctx, gathered);
    return status;
}
