/* test_kernel_pairs_decode.c - tests the decode kernels for bf16 pairs: reading K and V in place and in pieces must be
 * bitwise identical to reading packed K and V. NaN surrounds the inputs, and a canary value surrounds the outputs. */
#include "kernel/pairs.h"

#define COUNT(list) (sizeof list / sizeof *list)

/* Splits keys [first, end) into a piece of 32 keys, as a page of a cache, and a piece with the remaining keys. */
static mha__pieces pieces_of(const rows *r, int64_t width, int64_t first, int64_t end)
{
    mha__pieces p = {.stride = r->stride * (int64_t)sizeof *r->data, .bytes = width * (int64_t)sizeof *r->data};
    for (int64_t at = first; at < end; at += p.piece[p.count++].rows) {
        p.piece[p.count].at = r->data + at * r->stride;
        p.piece[p.count].rows = p.count == 0 && end - at > 32 ? 32 : end - at;
    }
    return p;
}

/* The decode kernels must give scores and partial results bitwise identical to those of a panel, for keys [first, end)
 * of a block and any split into pieces. */
static void decode_of(const mha__kernels *k, int64_t first, int64_t end, int64_t lanes, int64_t d, int64_t dv)
{
    const int64_t keys = end - first, panel = MHA__KEY_BLOCK / 2 * k->nr;
    block b = block_make(k, end, d, lanes);
    rows v = rows_make(end, dv, PAD, 5);
    attended want = attended_make(k, lanes, dv), got = attended_make(k, lanes, dv);
    array packed = array_make(k, (dv + k->nr - 1) / k->nr * panel, 0, OUTPUT);
    array s = array_make(k, MHA__KEY_BLOCK * k->nr, 0, OUTPUT),
          strip = array_make(k, k->decode_lanes * MHA__STRIP, 0, OUTPUT);
    array dense = array_make(k, d / 2 * lanes, 0, OUTPUT);
    const mha__pieces of_k = pieces_of(&b.key, d, first, end), of_v = pieces_of(&v, dv, first, end);
    for (int64_t i = 0; i < d / 2 * lanes; i++) /* pairs, whose bits may not be a number */
        memcpy(at_number(&dense, i), at_number(&b.queries, i / lanes * k->nr + i % lanes), sizeof(float));
    k->pairs->pack_values(end, dv, v.data, v.stride, 1, false, panel, packed.data);
    k->pairs->open();
    k->pairs->scores(keys, d, b.packed.data + first * b.packed.stride, b.packed.stride, b.queries.data, lanes, 1,
                     at_number(&s, first * k->nr), b.top.data, NULL);
    k->pairs->decode_scores(&of_k, d, dense.data, lanes, 1, strip.data, NULL);
    for (int64_t i = 0; i < keys * lanes; i++)
        assert_true(get(&strip, i % lanes * MHA__STRIP + i / lanes) ==
                    get(&s, (first + i / lanes) * k->nr + i % lanes));
    for (int round = 0; round < 3; round++) { /* each round resumes from the partial results of the previous round */
        mha__upcoming to_v = {.next = v.data, .lead = 16}, to_k = {.next = b.key.data, .lead = 16};
        to_k.ascending = round == 2;
        if (round == 1) to_v.far = of_v, to_k.far = of_k; /* prefetches into L2 */
        k->pairs->attend(first, end, lanes, dv, 0.125, b.top.data, s.data, packed.data, panel,
                         &(mha__partial){want.max.data, want.sum.data, want.o.data}, want.stride);
        k->pairs->decode_scores(&of_k, d, dense.data, lanes, 1, strip.data, &to_v);
        k->pairs->decode_attend(&of_v, keys, dv, lanes, 0.125, strip.data,
                                &(mha__partial){got.max.data, got.sum.data, got.o.data}, got.stride, &to_k);
    }
    k->pairs->close();
    assert_memory_equal(want.max.data, got.max.data, (size_t)lanes * sizeof(float));
    assert_memory_equal(want.sum.data, got.sum.data, (size_t)lanes * sizeof(float));
    for (int64_t i = 0; i < lanes * dv; i++)
        assert_true(get(&want.o, i / dv * want.stride + i % dv) == get(&got.o, i / dv * got.stride + i % dv));
    assert_true(guards_intact(&got.o) && guards_intact(&strip) && guards_intact(&got.max) && guards_intact(&got.sum));
    block_free(&b);
    free(v.memory);
    attended_free(&want), attended_free(&got);
    array_free(&packed), array_free(&s), array_free(&strip), array_free(&dense);
}

static int tested; /* number of tables with decode kernels for pairs */

static void decode_of_all(const mha__kernels *k)
{
    static const int64_t cuts[][2] = {{0, 1}, {0, 2}, {0, 16}, {0, 17}, {2, 33}, {32, 77}, {6, 128}, {0, 128}};
    static const int64_t widths[] = {2, 30, 32, 34, 64, 96, 128, 130, 256};
    if (!k->pairs->decode_scores) return;
    tested++;
    for (size_t n = 0; n < COUNT(cuts) * COUNT(widths); n++)
        for (int64_t lanes = 1; lanes <= k->decode_lanes; lanes++) {
            const int64_t *cut = cuts[n % COUNT(cuts)], d = widths[n / COUNT(cuts)];
            decode_of(k, cut[0], cut[1], lanes, d, n % 3 == 0 ? d + 1 : d);
        }
}

static void test_decode(void **state)
{
    (void)state;
    each(decode_of_all);
    assert_true(tested > 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_decode)};
    if (mha__cpu_has(MHA__AVX512BF16)) return cmocka_run_group_tests(tests, NULL, NULL);
    printf("skipped: no ISA of this CPU has decode kernels for bf16 pairs\n");
    return 77;
}
