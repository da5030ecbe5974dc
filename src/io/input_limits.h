/* input_limits.h - all limits on sizes and counts in input files.
 *
 * A file that exceeds a limit is rejected with a message that names the limit. All limits far exceed the needs of real
 * checkpoints: the largest published config is below 1 MiB, the largest tokenizer below 40 MiB, the largest header or
 * index below 20 MiB. Together, the limits bound the memory spent on a rejected file to 256 MiB, including the file. An
 * image may take 448 MiB, of which libjpeg allocates 256 MiB for a progressive file with four components. */
#ifndef MHA_IO_INPUT_LIMITS_H
#define MHA_IO_INPUT_LIMITS_H

#include <stdint.h>

#define MHA__MIB ((size_t)1 << 20)

#define MHA__CONFIG_BYTES (16 * MHA__MIB)        /* size of config.json and generation_config.json */
#define MHA__JSON_BYTES (128 * MHA__MIB)         /* size of tokenizer.json */
#define MHA__INDEX_BYTES (32 * MHA__MIB)         /* size of a shard index */
#define MHA__INDEX_TENSORS ((size_t)1 << 20)     /* number of tensors in a shard index */
#define MHA__GGUF_TENSORS ((size_t)1 << 18)      /* number of tensors in a GGUF file, with one per expert */
#define MHA__TOKENIZER_MEMORY (240 * MHA__MIB)   /* memory for reading tokenizer.json, including the file */
#define MHA__JSON_DEPTH 64                       /* nesting depth of objects and arrays */
#define MHA__STRING_BYTES (16 * MHA__MIB)        /* length of a string in a JSON file, before decoding */
#define MHA__JSON_NODES ((size_t)6 << 20)        /* number of values and keys in a JSON file that is stored as a tree */
#define MHA__IGNORED_BYTES MHA__MIB              /* size of a safetensors header entry with unknown fields */
#define MHA__HEADER_BYTES ((size_t)100000000)    /* size of a safetensors header, as in the reference reader */
#define MHA__IMAGE_BYTES (64 * MHA__MIB)         /* size of a PNG or JPEG file */
#define MHA__IMAGE_PIXELS ((int64_t)1 << 25)     /* number of pixels of an image, before and after it is resized */
#define MHA__NPY_HEADER_BYTES ((size_t)64 << 10) /* size of an .npy header; numpy's own default limit is 10,000 */
#define MHA__NAME_BYTES ((size_t)64 << 10)       /* length of a tensor name */
#define MHA__TENSORS ((size_t)1 << 22)           /* number of tensors in one file */
#define MHA__DIMENSIONS ((size_t)1 << 21)        /* number of dimensions of all tensors in one file together */
#define MHA__METADATA ((size_t)1 << 18)          /* number of metadata pairs in one file */
#define MHA__SHARDS 65536                        /* number of files of one checkpoint */
#define MHA__RANK 32                             /* number of dimensions of a tensor */
#define MHA__LAYERS 4096
#define MHA__HEADS 65536                    /* number of heads in one layer */
#define MHA__MODEL_HEADS ((int64_t)1 << 20) /* heads in all layers together; published models have at most 16,128 */
#define MHA__SEQUENCE ((int64_t)1 << 40)    /* number of tokens in a sequence */
#define MHA__DIM ((int64_t)1 << 31)         /* any other dimension in a config, such as a width */

/* Maximum size of a normalizer's output for `n` bytes of text. */
#define MHA__NORMALIZED_BYTES(n) (16 * (n) + 4096)

#endif
