/* input_limits.h - how much a file from outside may ask for. The only place where these numbers stand.
 *
 * A file that passes a limit is refused by a sentence that names the limit. None is near what real checkpoints need:
 * the largest published config is below 1 MiB, the largest tokenizer below 40 MiB, the largest header or index below
 * 20 MiB. Together they keep the memory that refusing one file takes below 256 MiB, the file included.
 */
#ifndef MHA_IO_INPUT_LIMITS_H
#define MHA_IO_INPUT_LIMITS_H

#include <stdint.h>

#define MHA__MIB ((size_t)1 << 20)

#define MHA__CONFIG_BYTES (16 * MHA__MIB)        /* config.json, generation_config.json */
#define MHA__JSON_BYTES (128 * MHA__MIB)         /* tokenizer.json */
#define MHA__INDEX_BYTES (32 * MHA__MIB)         /* shard index */
#define MHA__INDEX_TENSORS ((size_t)1 << 20)     /* tensors of a shard index */
#define MHA__TOKENIZER_MEMORY (240 * MHA__MIB)   /* for reading tokenizer.json, the file included */
#define MHA__JSON_DEPTH 64                       /* objects and arrays inside each other */
#define MHA__STRING_BYTES (16 * MHA__MIB)        /* one string of a JSON file, as written */
#define MHA__JSON_NODES ((size_t)6 << 20)        /* values and keys of a JSON file that is kept as a tree */
#define MHA__IGNORED_BYTES MHA__MIB              /* entry of a safetensors header that has fields to ignore */
#define MHA__HEADER_BYTES ((size_t)100000000)    /* safetensors header; the limit of the reference reader */
#define MHA__NPY_HEADER_BYTES ((size_t)64 << 10) /* .npy header; numpy itself stops at 10,000 unless told otherwise */
#define MHA__NAME_BYTES ((size_t)64 << 10)       /* tensor name */
#define MHA__TENSORS ((size_t)1 << 22)           /* tensors in one file */
#define MHA__EXTENTS ((size_t)1 << 21)           /* dimensions of all tensors in one file */
#define MHA__METADATA ((size_t)1 << 18)          /* pairs of metadata in one file */
#define MHA__SHARDS 65536                        /* files of one checkpoint */
#define MHA__RANK 32                             /* dimensions of a tensor */
#define MHA__LAYERS 4096
#define MHA__HEADS 65536                    /* of a layer */
#define MHA__MODEL_HEADS ((int64_t)1 << 20) /* of all layers together; the largest published models have 16,128 */
#define MHA__SEQUENCE ((int64_t)1 << 40)    /* tokens */
#define MHA__DIM ((int64_t)1 << 31)         /* any other dimension in a config: widths, vocabularies */

/* A normaliser may return at most this much for `n` bytes of text. */
#define MHA__NORMALIZED_BYTES(n) (16 * (n) + 4096)

#endif
