/* model_save.h - saves a model as a checkpoint folder that transformers and other tools load. Exceptions are models
 * with layers that only this project supports ("mha.heads" of layers that differ, "mha.kv_heads", "mha.feed_forward",
 * "mha.attention": model.h).
 *
 *     mha_model_save(model, "out", NULL, &err);
 *
 * The folder contains config.json with all its original keys, known or unknown (including "mha.heads" of pruned
 * models), and the tokenizer files. One model.safetensors contains all tensors of the checkpoint, including those that
 * the model does not use, with the original metadata.
 *
 * The folder appears complete or not at all. It is written next to its destination, as .NAME.tmp.PID; every file is
 * synced, the folder is opened and checked, and then one rename moves it into place. After kill -9, with a full disk or
 * without permission, the destination is unchanged: the old folder, or none. Only a killed process leaves its temporary
 * folder; the next save under the same name removes that folder if the file system supports locks. */
#ifndef MHA_MODEL_SAVE_H
#define MHA_MODEL_SAVE_H

#include "mha/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_model_save_options {
    size_t size;
    mha_dtype dtype; /* f32, bf16 or f16: type of all floating-point tensors, rounded to nearest even; config.json
                        states it too. Default: the stored types, and f32 for weights that are codes with scales, with
                        which config.json states f32 */
    int overwrite;   /* 1 = replace an existing checkpoint of that name (see mha_model_save) */
    /* Tensors that replace those of the same name, or are added: [count] of f32, with their own shapes. A replacement
     * is stored in the type of the tensor that it replaces, unless dtype is set; a new tensor as f32. */
    const mha_named_tensor *tensors;
    int64_t count;
    const char *config_json; /* replaces the model's config: NUL-terminated UTF-8 JSON; NULL = unchanged */
} mha_model_save_options;

/* Saves the model. `options` may be NULL. The tokenizer files are copied from the folder that the model was opened
 * from. `folder` may be that folder.
 *
 * An existing empty folder is accepted. Any other existing folder requires `overwrite` and must contain only the files
 * of a checkpoint. The files of a training run (train.h: state and log) count as checkpoint files and are removed. The
 * folder is exchanged atomically if the system supports it (Linux), else by two renames: the old folder becomes
 * .NAME.old.PID, then the new folder gets its name. If the process is killed between the two renames, the old folder
 * remains; the next save removes it, provided that a folder with the original name exists. Symbolic links are never
 * followed.
 *
 * Errors: MHA_ERR_IO with name and reason, including a missing tokenizer file of the model; MHA_ERR_FORMAT if the
 * result would not be a valid model (replaced tensors or config that do not fit); MHA_ERR_ARG; MHA_ERR_MEMORY;
 * MHA_ERR_CANCELED by the progress callback ("save", in bytes). On every error the destination is unchanged. Memory: a
 * few MiB. */
MHA_API mha_status mha_model_save(const mha_model *model, const char *folder, const mha_model_save_options *options,
                                  mha_error *err);

/* Saves the model as a GGUF file (version 3) for llama.cpp, or for mha_model_open. `options` may be NULL. Only
 * `overwrite` and `dtype` of the options are used: f32, bf16, f16 or q8_0, the type of all matrices, rounded to
 * nearest (rows that are not a multiple of 32 become f16 instead of q8_0). The default is the stored type, or f32 for
 * quantized types except MXFP4, which is kept. Vectors, position tables and token type tables are f32. All other
 * options must be 0.
 *
 * The families are bert, gemma, gemma2, gemma3_text, gpt2, gpt_oss, granite, llama, mistral and mixtral (as llama),
 * nomic_bert, olmo2, phi3, qwen2, qwen3, qwen3_moe, smollm3 and t5. The written file is opened before it gets its
 * name, and its config is compared with that of the model. A model that llama.cpp would compute differently is
 * MHA_ERR_UNSUPPORTED, naming the key: head counts that differ between layers, options of "mha.attention", windows or
 * rotations that the architecture lacks, experts in some layers only, biases in mixtral, olmo2 and qwen3_moe, or (in
 * bert, gpt2, nomic_bert, olmo2, phi3 and qwen2) heads whose width is not hidden / heads. eos_token_id must have at
 * most three tokens, the first of which is the token that the tokenizer appends, if any; with WordPiece, it must be
 * absent. A tensor that the model reads and that has no place in the file is refused by name, except the pooler of
 * BERT. The pooler and unread tensors are left out. The tokenizer must be byte-level BPE with the pattern of GPT-2,
 * LLaMA-3, Qwen2, gpt-oss or StarCoder, BPE of SentencePiece, WordPiece, or Unigram with Metaspace; a template of
 * pairs must add the tokens of a single text to each text. A model without a tokenizer is saved without one.
 *
 * The file appears complete or not at all, as with mha_file_write. Errors: those of mha_file_write,
 * MHA_ERR_UNSUPPORTED, MHA_ERR_ARG, MHA_ERR_MEMORY, MHA_ERR_CANCELED by the progress callback ("save", in bytes).
 * Memory: the largest tensor twice in f32, and the tokenizer. */
MHA_API mha_status mha_model_save_gguf(const mha_model *model, const char *path, const mha_model_save_options *options,
                                       mha_error *err);

/* Checks whether a save would fail because of existing files or a missing parent folder. Call it before long work; it
 * changes nothing. Errors: MHA_ERR_IO with name and reason, MHA_ERR_ARG. */
MHA_API mha_status mha_model_save_check(const char *folder, int overwrite, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
