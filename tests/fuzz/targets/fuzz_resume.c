/* fuzz_resume.c - reads bytes as training.safetensors of a checkpoint folder, from which training resumes (train.h).
 * The first byte selects whether heads have gates. The fingerprint of the weights replaces a run of 16 letters W. A
 * trainer resumed from an accepted checkpoint must run a step and save the result.
 */
#include "fuzz.h"
#include "mutate.h"
#include "support/files.h"
#include "train/trainer_struct.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 4 };

#define MODEL                                                                                                          \
    "{\"model_type\":\"gpt2\",\"vocab_size\":8,\"n_embd\":8,\"n_layer\":1,\"n_head\":2,\"n_inner\":8,\"n_positions\":" \
    "8}"

#ifdef MHA_FUZZ
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t max, unsigned seed);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t max, unsigned seed)
{
    return n < 2 ? fuzz_mutate_json(bytes, n, max, seed) : 1 + fuzz_mutate_header(bytes + 1, n - 1, max - 1, seed);
}
#endif

static mha_train_options options_of(int gates)
{
    mha_train_options o = {.size = sizeof o, .rate = 1e-3};
    if (gates) o.gates = (mha_train_gates){.penalty = MHA_GATES_L0, .heads = 1, .end = 1000};
    return o;
}

static void read_mark(char mark[17])
{
    mha_file *file = NULL;
    mha_error err = {0};
    fuzz_check(mha_file_open(NULL, files_path(fuzz_folder(), "training.safetensors"), NULL, &file, &err) == MHA_OK,
               err.message);
    for (int64_t i = 0; i < mha_file_metadata_count(file); i++) {
        const char *key, *value;
        mha_file_metadata(file, i, &key, &value, NULL);
        if (strcmp(key, "mha.train.weights") == 0) snprintf(mark, 17, "%s", value);
    }
    mha_file_free(file);
    fuzz_check(strlen(mark) == 16, "the fingerprint of the weights must have 16 characters");
}

/* Writes a checkpoint folder with a new trainer. Returns the fingerprint of its weights. */
static const char *make_folder(void)
{
    static char mark[17];
    mha_trainer *t = NULL;
    mha_error err = {0};
    const mha_train_options o = options_of(0);
    const mha_trainer_save_options over = {.size = sizeof over, .overwrite = 1};
    if (mark[0]) return mark;
    mha_model *model = fuzz_model(MODEL);
    fuzz_check(mha_trainer_create(model, &o, &t, &err) == MHA_OK, err.message);
    fuzz_check(mha_trainer_save(t, fuzz_folder(), &over, &err) == MHA_OK, err.message);
    mha_trainer_free(t);
    mha_model_free(model);
    read_mark(mark);
    return mark;
}

/* Runs a step. The moments in the file may be so large that the step is not finite; such a step must fail. */
static void use(mha_trainer *t)
{
    static const int32_t ids[LENGTH] = {1, 2, 3, 4};
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = LENGTH, .ids = ids};
    const mha_train_batch batch = {.input = &input};
    const int64_t before = mha_trainer_step_count(t);
    mha_error err = {0};
    fuzz_check(before >= 0, "the step count must not be negative");
    const mha_status status = mha_trainer_step(t, &batch, 1, NULL, &err);
    fuzz_check(status == MHA_OK || status == MHA_ERR_NOT_FINITE,
               "a step of a resumed run must succeed, or fail because it is not finite");
    fuzz_check(mha_trainer_step_count(t) == before + (status == MHA_OK),
               "the step count must increase only if the step succeeds");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n == 0) return 0;
    const char *mark = make_folder();
    const mha_train_options o = options_of(bytes[0] & 1);
    uint8_t *file = fuzz_copy(bytes + 1, n - 1, 'W', mark);
    mha_trainer *t = NULL;
    mha_error err = {0};
    files_write(files_path(fuzz_folder(), "training.safetensors"), file, n - 1);
    const mha_status status = mha_trainer_resume(fuzz_ctx(), fuzz_folder(), &o, &t, &err);
    fuzz_check((status == MHA_OK) == (t != NULL), "trainer must be set only on success");
    fuzz_refusal(status, &err, status == MHA_ERR_ARG ? "" : "training.safetensors");
    if (t) use(t);
    mha_trainer_free(t);
    free(file);
    return 0;
}
