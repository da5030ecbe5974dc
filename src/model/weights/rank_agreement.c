/* rank_agreement.c - makes all processes that open a model fail if one of them fails, and compares the opened
 * models. */
#include "base/error.h"
#include "io/derived_tensor.h"
#include "math/hash.h"
#include "model/weights/rank_parts.h"
#include <stdio.h>
#include <string.h>

enum { COMPARED = 64 }; /* bytes at the start of a matrix, and of its scales, that are compared */

/* Sends `bytes` bytes of `own` to all ranks, and receives the bytes of all ranks in `all`, an array with one element
 * per rank. */
static mha_status gather(const mha_model_ranks *ranks, const void *own, void *all, size_t bytes, mha_error *err)
{
    mha__messages m = {0};
    for (int rank = 0; rank < ranks->ranks; rank++) {
        m.send[rank] = own;
        m.receive[rank] = (char *)all + (size_t)rank * bytes;
        m.send_bytes[rank] = m.receive_bytes[rank] = bytes;
    }
    memcpy((char *)all + (size_t)ranks->rank * bytes, own, bytes);
    return mha__exchange(ranks, &m, err);
}

mha_status mha__rank_parts_agree(const mha_model *m, mha_status status, mha_error *err)
{
    mha_error own = {.status = status}, all[MHA_RANK_GROUPS];
    if (!m->ranks.ranks) return status;
    if (status != MHA_OK && err) own = *err;
    MHA__TRY(gather(&m->ranks, &own, all, sizeof own, err));
    for (int rank = 0; rank < m->ranks.ranks; rank++) {
        if (all[rank].status == MHA_OK) continue;
        if (rank == m->ranks.rank) return status;
        all[rank].message[sizeof all[rank].message - 1] = 0;
        return mha__fail(err, all[rank].status, "rank %d: %.900s", rank, all[rank].message);
    }
    return MHA_OK;
}

/* ---- comparison ---- */

static uint64_t digest_of(const mha_model *m)
{
    uint64_t h = mha__hash(0, m->config_text, strlen(m->config_text));
    for (mha__tensor_step s = {0}; mha__tensor_each(&m->config, &s);) {
        const mha_tensor *t = mha__weights_tensor(&m->outer, s.role, s.layer, s.bias);
        if (!t) continue;
        h = mha__hash(h, t->name, strlen(t->name));
        h = mha__hash(h, &t->dtype, sizeof t->dtype);
        h = mha__hash(h, t->shape, (size_t)t->rank * sizeof *t->shape);
        h = mha__derived_hash(h, t, COMPARED);
        h = mha__hash(h, t->data, t->rank == 1 || t->bytes < COMPARED ? t->bytes : COMPARED);
    }
    return h;
}

/* What the ranks compare: the digest of config and tensors, and whether the output matrix is the word embeddings in
 * the rows of the rank. */
typedef struct opened {
    uint64_t digest, tied;
} opened;

mha_status mha__rank_parts_same(mha_model *m, mha_error *err)
{
    const mha_model_ranks *ranks = &m->ranks;
    opened all[MHA_RANK_GROUPS];
    if (!ranks->ranks) return MHA_OK;
    const opened own = {digest_of(m), mha__model_is_tied(m, mha__own_range(ranks, m->config.vocab))};
    MHA__TRY(gather(ranks, &own, all, sizeof own, err));
    m->tied_on_ranks = true;
    for (int rank = 0; rank < ranks->ranks; rank++) {
        if (all[rank].digest != all[0].digest)
            return mha__fail(err, MHA_ERR_ARG, "rank %d: config.json and tensors must be the same as on rank 0", rank);
        m->tied_on_ranks = m->tied_on_ranks && all[rank].tied;
    }
    return MHA_OK;
}

/* ---- fingerprint ---- */

/* Computes a hash of the word embeddings of each of this rank's groups. */
static void hash_words(const mha_model *m, uint64_t groups[MHA_RANK_GROUPS])
{
    const mha_model_ranks *ranks = &m->ranks;
    const int begin = mha__rank_begin(ranks, ranks->rank), end = mha__rank_begin(ranks, ranks->rank + 1);
    const float *row = m->words.weight;
    for (int g = begin; g < end; g++) {
        const int64_t rows = mha__group_begin(m->config.vocab, g + 1) - mha__group_begin(m->config.vocab, g);
        groups[g] = mha__hash(0, row, (size_t)(rows * m->config.embed_width) * sizeof *row);
        row += rows * m->config.embed_width;
    }
}

mha_status mha__rank_parts_hash(const mha_model *m, uint64_t *hash, mha_error *err)
{
    uint64_t own[MHA_RANK_GROUPS] = {0}, all[MHA_RANK_GROUPS][MHA_RANK_GROUPS];
    hash_words(m, own);
    MHA__TRY(gather(&m->ranks, own, all, sizeof own, err));
    *hash = digest_of(m);
    for (int rank = 0; rank < m->ranks.ranks; rank++) {
        const int begin = mha__rank_begin(&m->ranks, rank), end = mha__rank_begin(&m->ranks, rank + 1);
        *hash = mha__hash(*hash, &all[rank][begin], (size_t)(end - begin) * sizeof **all);
    }
    return MHA_OK;
}
