/* moments_gather.c - sends the moments of all ranks to rank 0 while rank 0 writes a checkpoint. Rank 0 requests pieces,
 * and the other ranks answer, so that rank 0 can end the exchange at any time if it fails. */
#include "train/trainer/moments_gather.h"

#include "base/ctx.h"
#include "base/error.h"
#include "io/safetensors/safetensors_stream.h"
#include "train/trainer_struct.h"
#include <string.h>

enum { END = -1 };

/* A request from rank 0: elements [first, first + count) of state tensor `index`; index END = no more requests. */
typedef struct request {
    int64_t index, first, count;
} request;

/* Sets starts [ranks + 1] so that rank r has the elements starts[r] .. starts[r + 1] - 1 of the piece. */
static void find_starts(const mha_trainer *t, const request *r, int64_t *starts)
{
    const int64_t piece = t->parameter[r->index / 2].first + r->first;
    for (int rank = 0; rank <= mha__train_ranks(t); rank++)
        starts[rank] = mha__clamp64(t->starts[rank] - piece, r->count);
}

/* Copies the elements of the piece that this rank has to `piece`. */
static void copy_own(const mha_trainer *t, const request *r, const int64_t *starts, char *piece)
{
    const int64_t size = (int64_t)mha_dtype_size(t->o.moments);
    const mha__parameter *p = &t->parameter[r->index / 2];
    const char *moments = t->state[r->index].data;
    const int64_t first = starts[mha__train_rank(t)], end = starts[mha__train_rank(t) + 1];
    if (end > first)
        memcpy(piece + first * size, moments + (r->first + first - p->own_first) * size,
               (size_t)((end - first) * size));
}

static mha_status exchange(const mha_trainer *t, const request *r, void *piece, mha_error *err)
{
    int64_t *starts = t->piece_starts;
    find_starts(t, r, starts);
    copy_own(t, r, starts, piece);
    return t->o.ranks->collect(t->o.ranks->user, piece, mha_dtype_size(t->o.moments), starts, err);
}

/* Broadcasts a request from rank 0 to all ranks. The ranks wait for the request without a timeout, because rank 0 may
 * be writing a large file. */
static mha_status pass_request(const mha_trainer *t, request *r, mha_error *err)
{
    const mha_train_ranks *ranks = t->o.ranks;
    MHA__TRY(ranks->agree(ranks->user, MHA_OK, 1, err));
    return ranks->broadcast(ranks->user, r, sizeof *r, err);
}

mha_status mha__moments_request(void *user, int64_t index, int64_t first, int64_t count, void *to, mha_error *err)
{
    const mha_trainer *t = user;
    request r = {index, first, count};
    MHA__TRY(pass_request(t, &r, err));
    return exchange(t, &r, to, err);
}

static mha_status answer_requests(const mha_trainer *t, void *piece, mha_error *err)
{
    for (;;) {
        request r;
        MHA__TRY(pass_request(t, &r, err));
        if (r.index == END) return MHA_OK;
        MHA__TRY(exchange(t, &r, piece, err));
    }
}

mha_status mha__moments_share(const mha_trainer *t, mha_error *err)
{
    const mha_train_ranks *ranks = t->o.ranks;
    const size_t bytes = MHA__OUTGOING_PIECE * mha_dtype_size(t->o.moments);
    mha_error why = {0};
    void *piece = mha__train_rank(t) > 0 ? mha__alloc(t->ctx, bytes) : NULL;
    mha_status status = MHA_OK;
    if (mha__train_rank(t) > 0 && !piece) status = mha__no_memory(&why, bytes, "a piece of the moments");
    status = ranks->agree(ranks->user, status, 1, &why);
    mha__train_moments(t);
    if (status == MHA_OK && piece) status = answer_requests(t, piece, &why);
    mha__free(t->ctx, piece);
    if (status != MHA_OK && err) *err = why;
    return status;
}

mha_status mha__moments_unshare(const mha_trainer *t, mha_status status, mha_error *err)
{
    const mha_train_ranks *ranks = t->o.ranks;
    request end = {.index = END};
    mha_error why = {0};
    if (mha__train_rank(t) == 0 && pass_request(t, &end, &why) != MHA_OK) {
        if (status == MHA_OK) *err = why;
        return status == MHA_OK ? why.status : status;
    }
    return ranks->agree(ranks->user, status, 1, err);
}
