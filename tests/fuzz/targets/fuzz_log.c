/* fuzz_log.c - reads bytes as the log of a training run that is resumed at a step. The first byte selects the step; 64
 * is the end of the log. An accepted log must be unchanged after its lines are read again.
 */
#include "fuzz.h"
#include "mha/train_log.h"
#include "mutate.h"
#include "support/files.h"
#include <string.h>

FUZZ_MUTATES_JSON

static mha_train_log *read_log(const void *bytes, size_t n, int64_t step)
{
    const char *path = files_path(fuzz_folder(), "training.jsonl");
    mha_train_log *log = NULL;
    mha_error err = {0};
    files_write(path, bytes, n);
    const mha_status status = mha_train_log_read(fuzz_ctx(), path, step, &log, &err);
    fuzz_refusal(status, &err, path);
    fuzz_check((log != NULL) == (status == MHA_OK), "log must be set only on success");
    return log;
}

static void check(const mha_train_log *log, int64_t step)
{
    const int64_t count = mha_train_log_count(log);
    fuzz_check(step < 0 || (count > 0 && mha_train_log_record(log, count - 1)->step == step),
               "a log read for a step must end with this step");
    for (int64_t n = 0; n < count; n++) {
        const mha_train_record *r = mha_train_log_record(log, n);
        fuzz_check(n == 0 || mha_train_log_record(log, n - 1)->step < r->step, "steps must ascend");
        for (int64_t i = 0; i < r->sample_count; i++)
            fuzz_check(!r->samples[i].prompt[r->samples[i].prompt_bytes] &&
                           !r->samples[i].text[r->samples[i].text_bytes],
                       "texts of samples must end with NUL");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n == 0) return 0;
    const int64_t step = bytes[0] & 64 ? -1 : bytes[0] % 8;
    mha_train_log *log = read_log(bytes + 1, n - 1, step);
    if (!log) return 0;
    size_t length[2];
    check(log, step);
    const char *lines = mha_train_log_lines(log, &length[0]);
    mha_train_log *again = read_log(lines, length[0], step);
    fuzz_check(again != NULL, "a saved log must be accepted again");
    const char *same = mha_train_log_lines(again, &length[1]);
    fuzz_check(length[0] == length[1] && memcmp(same, lines, length[0]) == 0,
               "reading a saved log must reproduce it exactly");
    mha_train_log_free(again);
    mha_train_log_free(log);
    return 0;
}
