/* limits.h - how much a file from outside may ask for. The only place where these numbers stand.
 *
 * A file that passes a limit is refused by a sentence that names the limit. None is near what real checkpoints need:
 * the largest published config is below 1 MiB, the largest tokenizer below 40 MiB, the largest header below 20 MiB.
 */
#ifndef MHA_IO_LIMITS_H
#define MHA_IO_LIMITS_H

#include <stdint.h>

#define MHA__MIB ((size_t)1 << 20)

#define MHA__CONFIG_BYTES (16 * MHA__MIB)        /* config.json, generation_config.json */
#define MHA__JSON_BYTES (128 * MHA__MIB)         /* tokenizer.json, shard index */
#define MHA__JSON_DEPTH 64                       /* objects and arrays inside each other */
#define MHA__STRING_BYTES (16 * MHA__MIB)        /* one string of a JSON file, as written */
#define MHA__HEADER_BYTES ((size_t)100000000)    /* safetensors header; the limit of the reference reader */
#define MHA__NPY_HEADER_BYTES ((size_t)64 << 10) /* .npy header; numpy itself stops at 10,000 unless told otherwise */
#define MHA__NAME_BYTES ((size_t)64 << 10)       /* tensor name */
#define MHA__TENSORS ((size_t)1 << 22)           /* tensors in one file */
#define MHA__SHARDS 65536                        /* files of one checkpoint */
#define MHA__RANK 32                             /* dimensions of a tensor */
#define MHA__LAYERS 4096
#define MHA__HEADS 65536
#define MHA__SEQUENCE ((int64_t)1 << 40) /* tokens */
#define MHA__DIM ((int64_t)1 << 31)      /* any other dimension in a config: widths, vocabularies */

/* A normaliser may return at most this much for `n` bytes of text. */
#define MHA__NORMALIZED_BYTES(n) (16 * (n) + 4096)

#endif
