/* live_edges.c - attention knockout: edges from query to key tokens that the changed side does not have. */
#include "live.h"

/* Removes `count` edges on side LIVE_CHANGED: rows of layer, head, query and key; layer or head -1 = all. */
LIVE_EXPORT(live_remove_edges) mha_status live_remove_edges(const int32_t *rows, int count)
{
    if (count < 0 || count > LIVE_EDGES)
        return live_fail("removed edges must be at most %d (got %d)", LIVE_EDGES, count);
    for (int n = 0; n < count; n++, rows += 4)
        live.edges[n] = (mha_attention_edge){rows[0], rows[1], rows[2], rows[3]};
    live.edge_count = count;
    return MHA_OK;
}

mha_status live_pass(live_side side, const mha_model_input *in, const mha_model_output *out)
{
    mha_attention_edge edges[LIVE_EDGES];
    int64_t count = 0;
    for (int n = 0; side == LIVE_CHANGED && n < live.edge_count; n++)
        if (live.edges[n].query < in->length && live.edges[n].key < in->length) edges[count++] = live.edges[n];
    return count ? mha_knockout_forward(live.model, in, out, edges, count, &live_err)
                 : mha_model_forward(live.model, in, out, &live_err);
}
