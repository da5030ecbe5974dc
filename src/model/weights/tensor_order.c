/* tensor_order.c - see tensor_order.h. */
#include "model/weights/tensor_order.h"

#include <string.h>

/* Describes a tensor as groups of `count` pieces of `size` elements. Piece n of a group is the model's piece number
 * `n % parts * (count / parts) + n / parts` of that group, which has `room` elements: the elements of the piece, then
 * zeros. */
typedef struct pieces {
    int64_t groups, count, parts, size, room;
} pieces;

static pieces pieces_of(const mha__config *c, mha__role role, int64_t layer, bool bias)
{
    const mha__part *part = mha__part_of(c, role);
    const int64_t width = bias ? 1 : c->hidden, row = c->head_dim * width;
    if (layer < 0) return (pieces){0}; /* parts outside the layers are stored in the model's order */
    if (part->per_head) return (pieces){1, 3 * c->layer_heads[layer], 3, row, row};
    if (part->alternating) return (pieces){c->experts, 2 * c->intermediate * width, 2, 1, 1};
    if (!part->padded || bias || c->value_width == c->head_dim) return (pieces){0};
    return (pieces){c->hidden, c->layer_heads[layer], 1, c->value_width, c->head_dim};
}

int64_t mha__order_elements(const mha__config *c, mha__role role, int64_t layer, bool bias)
{
    const pieces p = pieces_of(c, role, layer, bias);
    return p.groups * p.count * p.room;
}

void mha__order_copy(const mha__config *c, mha__role role, int64_t layer, bool bias, const float *from, float *to,
                     bool back)
{
    const pieces p = pieces_of(c, role, layer, bias);
    for (int64_t g = 0; g < p.groups; g++)
        for (int64_t n = 0; n < p.count; n++) {
            const int64_t stored = (g * p.count + n) * p.size,
                          ours = (g * p.count + n % p.parts * (p.count / p.parts) + n / p.parts) * p.room;
            memcpy(to + (back ? stored : ours), from + (back ? ours : stored), (size_t)p.size * sizeof *to);
            if (!back) memset(to + ours + p.size, 0, (size_t)(p.room - p.size) * sizeof *to);
        }
}
