/* canonical_order.c - puts characters into canonical order, and assigns their offsets in the original text. */
#include "text/normalize/canonical_order.h"

#include <string.h>

mha_status mha__order_add(mha__pass *pass, mha__pending item)
{
    MHA__TRY(mha__pass_grow(pass, &pass->run, &pass->run_room, pass->run_count + 1, sizeof *pass->run));
    pass->run[pass->run_count++] = item;
    return MHA_OK;
}

static bool in_order(const mha__pending *run, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (run[i - 1].order > run[i].order) return false;
    return true;
}

/* Sorts the run by combining class with a stable counting sort. */
static void sort(const mha__pending *run, size_t n, mha__pending *sorted)
{
    size_t begin[256] = {0};
    for (size_t i = 0; i < n; i++)
        if (run[i].order < 255) begin[run[i].order + 1]++;
    for (int k = 1; k < 256; k++)
        begin[k] += begin[k - 1];
    for (size_t i = 0; i < n; i++)
        sorted[begin[run[i].order]++] = run[i];
}

/* Assigns offsets after sorting. As in the reference, characters move but offsets do not: the i-th sorted character
 * gets the i-th offset of the run. A character inserted by a decomposition keeps the offset of the character before
 * it. */
static void place(const mha__pending *run, size_t n, mha__pending *sorted)
{
    size_t next = 0;
    uint32_t from = run[0].from;
    for (size_t i = 0; i < n; i++) {
        if (!sorted[i].inserted) {
            while (run[next].inserted)
                next++;
            from = run[next++].from;
        }
        sorted[i].from = from;
    }
}

mha_status mha__order_settle(mha__pass *pass, size_t begin)
{
    size_t n = pass->run_count - begin;
    if (n < 2) return MHA_OK;
    mha__pending *run = pass->run + begin;
    if (in_order(run, n)) return MHA_OK;
    MHA__TRY(mha__pass_grow(pass, &pass->sorted, &pass->sorted_room, n, sizeof *pass->sorted));
    sort(run, n, pass->sorted);
    place(run, n, pass->sorted);
    memcpy(run, pass->sorted, n * sizeof *run);
    return MHA_OK;
}

mha_status mha__order_put(mha__pass *pass, const mha__composed *list, size_t count)
{
    size_t next = 0; /* first character in pass->run without an assigned offset */
    uint32_t from = 0;
    for (size_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < list[i].origins; k++) {
            while (pass->run[next].inserted)
                next++;
            if (k == 0) from = pass->run[next].from;
            next++;
        }
        MHA__TRY(mha__pass_put(pass, list[i].code, from));
        if (list[i].origins > 1) from = pass->run[next - 1].from;
    }
    return MHA_OK;
}
