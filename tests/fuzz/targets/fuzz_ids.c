/* fuzz_ids.c - reads bytes as a file of token ids for training; the first byte selects the format (.npy or .bin) and
 * the model. Accepted data must contain ids of the model's vocabulary, in sequences of equal length.
 */
#include "fuzz.h"
#include "mha/train_data.h"
#include "support/files.h"

enum { VOCAB = 300, LENGTH = 5 };

static void check(const mha_train_data *data)
{
    int32_t ids[LENGTH];
    const mha_train_data_info *info = mha_train_data_describe(data);
    fuzz_check(info->length >= 2 && info->length <= LENGTH, "a sequence must not be longer than requested");
    fuzz_check(info->sequences > 0 && info->sequences <= info->tokens,
               "the number of sequences must be from 1 to the number of tokens");
    for (int64_t n = 0; n < info->sequences; n++) {
        fuzz_check(mha_train_data_sequence(data, n, ids) == info->length, "a sequence must have its stated length");
        for (int64_t i = 0; i < info->length; i++)
            fuzz_check(ids[i] >= 0 && ids[i] < VOCAB, "ids must be tokens of the model");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n == 0) return 0;
    const char *path = files_path(fuzz_folder(), bytes[0] & 1 ? "ids.npy" : "ids.bin");
    const mha_train_data_options o = {.size = sizeof o,
                                      .length = LENGTH,
                                      .vocab = VOCAB,
                                      .causal = (bytes[0] & 2) != 0,
                                      .shorten = 1,
                                      .no_map = (bytes[0] & 4) != 0,
                                      .first = 2,
                                      .end = 1};
    mha_train_data *data = NULL;
    mha_error err = {0};
    files_write(path, bytes + 1, n - 1);
    fuzz_check(mha_train_data_create(fuzz_ctx(), &o, &data, &err) == MHA_OK, err.message);
    mha_status status = mha_train_data_add_file(data, path, &err);
    fuzz_refusal(status, &err, path);
    if (status == MHA_OK) {
        status = mha_train_data_finish(data, &err);
        fuzz_refusal(status, &err, "the data must have");
    }
    if (status == MHA_OK) check(data);
    mha_train_data_free(data);
    return 0;
}
