/* selected_heads.c - reports the heads that each layer selected, as rows of mha_model_output.kept. */
#include "model/forward/selected_heads.h"

#include <string.h>

void mha__selected_heads_begin(const mha_model *m, mha__batch *batch, int64_t layer, uint8_t *kept)
{
    const mha_choice choice = m->config.attention[layer].choice.of;
    const bool chooses = choice == MHA_CHOICE_EXPERTS || choice == MHA_CHOICE_HEADS;
    batch->layer.kept = kept && chooses ? kept + layer * batch->sequences * m->config.heads : NULL;
}

/* Moves the rows of a layer to their final positions. The layer has written contiguous rows of its own head count. Rows
 * are moved from last to first, because source and destination overlap. */
static void spread(const mha_model *m, int64_t sequences, int64_t layer, uint8_t *rows)
{
    const int64_t H = m->config.heads, own = m->config.layer_heads[layer];
    for (int64_t b = sequences; b-- > 0;) {
        memmove(rows + b * H, rows + b * own, (size_t)own);
        memset(rows + b * H + own, 0, (size_t)(H - own));
    }
}

void mha__selected_heads_report(const mha_model *m, const mha__batch *batch, int64_t layer, uint8_t *kept)
{
    const int64_t H = m->config.heads, own = m->config.layer_heads[layer];
    if (!kept) return;
    uint8_t *rows = kept + layer * batch->sequences * H;
    if (batch->layer.kept) {
        spread(m, batch->sequences, layer, rows);
        return;
    }
    for (int64_t b = 0; b < batch->sequences; b++) {
        memset(rows + b * H, 1, (size_t)own);
        memset(rows + b * H + own, 0, (size_t)(H - own));
    }
}
