/* fuzz_ids.c - any bytes as a file of token ids that training reads: the first byte chooses .npy or .bin, and what the
 * model is. What is accepted are ids of the model's vocabulary, in sequences of one length.
 */
#include "fuzz.h"
#include "program.h"

#include "support/files.h"
#include "train/train_sequences.h"

enum { VOCAB = 300, LENGTH = 5 };

static void check(const train_data *d)
{
    int32_t ids[LENGTH];
    fuzz_check(d->form.length >= 2 && d->form.length <= LENGTH, "a sequence has no more tokens than was asked for");
    fuzz_check(d->sequences > 0 && d->sequences <= d->tokens, "there are sequences");
    for (int64_t n = 0; n < d->sequences; n++) {
        fuzz_check(train_data_sequence(d, n, ids) == d->form.length, "a sequence has its length");
        for (int64_t i = 0; i < d->form.length; i++)
            fuzz_check(ids[i] >= 0 && ids[i] < VOCAB, "ids are tokens of the model");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n == 0) return 0;
    const char *path = files_path(fuzz_folder(), bytes[0] & 1 ? "ids.npy" : "ids.bin");
    const train_form form = {
        .length = LENGTH, .vocab = VOCAB, .causal = bytes[0] & 2, .masks = !(bytes[0] & 2), .end = 1, .first = 2};
    const train_list list = {.item = (char **)&path, .count = 1};
    train_data data = {0};
    files_write(path, bytes + 1, n - 1);
    const cli_session *session = fuzz_session(path);
    int code = train_data_ids(session, &form, &list, &data);
    if (code == CLI_DONE) code = train_data_shorten(session, &data, path);
    fuzz_code(code);
    if (code == CLI_DONE) check(&data);
    train_data_free(&data);
    return 0;
}
