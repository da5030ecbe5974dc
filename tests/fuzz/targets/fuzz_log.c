/* fuzz_log.c - any bytes as the log of a checkpoint, training.jsonl, which a resumed run reads up to its step: the
 * first byte. What is accepted is read again from its own lines as the same.
 */
#include "fuzz.h"
#include "mutate.h"
#include "program.h"

#include "support/files.h"
#include "train/train_log.h"
#include <string.h>

FUZZ_MUTATES_JSON

static int read_log(const void *bytes, size_t n, int64_t step, train_log *log)
{
    const char *path = files_path(fuzz_folder(), "training.jsonl");
    files_write(path, bytes, n);
    train_log_begin(log);
    const int code = train_log_read(fuzz_session(path), path, step, log);
    fuzz_code(code);
    return code;
}

static void check(const train_log *log, int64_t step)
{
    fuzz_check(log->count > 0 && log->record[log->count - 1].step == step, "a log ends with its step");
    for (int64_t n = 1; n < log->count; n++)
        fuzz_check(log->record[n - 1].step < log->record[n].step, "steps ascend");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    train_log log, again;
    if (n == 0) return 0;
    const int64_t step = bytes[0] % 8;
    const int code = read_log(bytes + 1, n - 1, step, &log);
    if (code == CLI_DONE) {
        check(&log, step);
        fuzz_check(read_log(log.text, log.bytes, step, &again) == CLI_DONE, "what was accepted is accepted again");
        fuzz_check(again.bytes == log.bytes && memcmp(again.text, log.text, log.bytes) == 0, "as the same");
        train_log_free(&again);
    }
    train_log_free(&log);
    return 0;
}
