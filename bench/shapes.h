/* shapes.h - the attention problems of docs/benchmarks.md, one per row.
 *
 * `mha bench attention` is compiled from this table, and bench/compare.py reads it. Causal rows have Lq = Lk. A forward
 * pass counts as 4 B H Lq Lk D operations, or half as many if causal; forward and backward pass together count as 3.5
 * times that. Bytes are counted as one read of K and V.
 */
#ifndef BENCH_SHAPES_H
#define BENCH_SHAPES_H

/* X(name, B, H, Hkv, Lq, Lk, D, causal) */
#define BENCH_ATTENTION_ROWS(X)                       \
    X("prefill", 1, 12, 12, 512, 512, 64, 0)          \
    X("prefill-causal", 1, 12, 12, 512, 512, 64, 1)   \
    X("bert-batch", 32, 12, 12, 128, 128, 64, 0)      \
    X("grouped-causal", 1, 32, 8, 2048, 2048, 128, 1) \
    X("long", 1, 16, 16, 4096, 4096, 64, 0)           \
    X("long-causal", 1, 16, 16, 4096, 4096, 64, 1)    \
    X("small", 8, 2, 2, 16, 16, 8, 0)                 \
    X("decode-grouped", 1, 32, 8, 1, 4096, 128, 0)    \
    X("decode", 1, 32, 32, 1, 2048, 128, 0)           \
    X("decode-batch", 16, 32, 8, 1, 2048, 128, 0)     \
    X("decode-long", 1, 8, 1, 1, 65536, 128, 0)

/* The rows that time the forward and backward pass together; the columns are the same. */
#define BENCH_TRAINING_ROWS(X)                  \
    X("training", 4, 12, 12, 1024, 1024, 64, 0) \
    X("training-causal", 4, 12, 12, 1024, 1024, 64, 1)

#endif
