/* cluster_all_reduce.c - the sum of gradients over all ranks: reduce-scatter, then all-gather.
 *
 * Gradients are added by recursive halving: rank r first exchanges ranges with rank r ^ 1, each rank sending the range
 * that the other rank keeps, then with rank r ^ 2, and so on. Each addition therefore adds the sums of two sibling
 * subtrees of ranks, and each rank sends and receives about one vector in total. Gathering reverses these steps. */
#include "library/cluster_train.h"

/* ---- reduce-scatter ---- */

/* An exchange between two ranks: this rank keeps the range `own` of its vector, and sends the range `others` in
 * pieces. */
typedef struct halving {
    mha_cluster *cluster;
    int peer;
    float *own, *others;
    int64_t own_count, others_count;
} halving;

static int64_t piece_of(int64_t count, int64_t at)
{
    return count - at < 0 ? 0 : count - at < MHA__GRADIENT_PIECE ? count - at : MHA__GRADIENT_PIECE;
}

static mha_status start_piece(const halving *h, int64_t n, mha_error *err)
{
    mha_cluster *c = h->cluster;
    const size_t sends = (size_t)piece_of(h->others_count, n * MHA__GRADIENT_PIECE) * sizeof(float);
    const size_t receives = (size_t)piece_of(h->own_count, n * MHA__GRADIENT_PIECE) * sizeof(float);
    if (sends) MHA__TRY(mha__cluster_send(c, h->others + n * MHA__GRADIENT_PIECE, sends, h->peer, err));
    return receives ? mha__cluster_receive(c, c->training->pieces + n % 2 * MHA__GRADIENT_PIECE, receives, h->peer, err)
                    : MHA_OK;
}

static void add_piece(const halving *h, int64_t n)
{
    const int64_t count = piece_of(h->own_count, n * MHA__GRADIENT_PIECE);
    const float *restrict received = h->cluster->training->pieces + n % 2 * MHA__GRADIENT_PIECE;
    float *restrict own = count > 0 ? h->own + n * MHA__GRADIENT_PIECE : NULL;
    for (int64_t i = 0; i < count; i++)
        own[i] += received[i];
}

static mha_status exchange(const halving *h, mha_error *err)
{
    const int64_t max = h->own_count > h->others_count ? h->own_count : h->others_count;
    const int64_t pieces = (max + MHA__GRADIENT_PIECE - 1) / MHA__GRADIENT_PIECE;
    MHA__TRY(start_piece(h, 0, err));
    for (int64_t n = 0; n < pieces; n++) {
        MHA__TRY(mha__cluster_wait(h->cluster, "sum of gradients", err));
        if (n + 1 < pieces) MHA__TRY(start_piece(h, n + 1, err));
        add_piece(h, n);
    }
    return MHA_OK;
}

mha_status mha__reduce_scatter(void *user, float *values, const int64_t *starts, mha_error *err)
{
    mha_cluster *c = user;
    const int rank = c->info.rank, ranks = c->info.ranks;
    for (int bit = 1; bit < ranks; bit *= 2)
        for (int own = rank % (2 * bit); own < ranks; own += 2 * bit) {
            const int others = own ^ bit;
            const halving h = {.cluster = c,
                               .peer = rank ^ bit,
                               .own = values + starts[own],
                               .others = values + starts[others],
                               .own_count = starts[own + 1] - starts[own],
                               .others_count = starts[others + 1] - starts[others]};
            MHA__TRY(exchange(&h, err));
        }
    return MHA_OK;
}

/* ---- all-gather ---- */

mha_status mha__move_range(mha_cluster *c, void *values, size_t size, const int64_t *starts, int range, int peer,
                           bool sends, mha_error *err)
{
    char *data = (char *)values + (size_t)starts[range] * size;
    const size_t bytes = (size_t)(starts[range + 1] - starts[range]) * size;
    return sends ? mha__cluster_send(c, data, bytes, peer, err) : mha__cluster_receive(c, data, bytes, peer, err);
}

mha_status mha__all_gather(void *user, void *values, size_t size, const int64_t *starts, mha_error *err)
{
    mha_cluster *c = user;
    const int rank = c->info.rank, ranks = c->info.ranks;
    for (int bit = ranks / 2; bit > 0; bit /= 2) {
        for (int own = rank % (2 * bit); own < ranks; own += 2 * bit) {
            MHA__TRY(mha__move_range(c, values, size, starts, own, rank ^ bit, true, err));
            MHA__TRY(mha__move_range(c, values, size, starts, own ^ bit, rank ^ bit, false, err));
        }
        MHA__TRY(mha__cluster_wait(c, "gathering", err));
    }
    return MHA_OK;
}
