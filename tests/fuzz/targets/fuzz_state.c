/* fuzz_state.c - reads bytes as the state file of head measurements (heads/data/measure_state.h). The fingerprint
 * of the model replaces a run of 16 letters M, the fingerprint of the data a run of 16 letters D. An accepted state
 * must be unchanged after saving and reading.
 */
#include "base/error.h"
#include "fuzz.h"
#include "heads/data/head_data.h"
#include "heads/data/measure_state.h"
#include "mutate.h"
#include "support/files.h"
#include <stdlib.h>
#include <string.h>

FUZZ_MUTATES_HEADER

enum { STEPS = 9, SUMS = 6 };

#define MODEL                                                                                                        \
    "{\"model_type\":\"bert\",\"vocab_size\":8,\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2," \
    "\"intermediate_size\":8,\"max_position_embeddings\":8}"

static double sum[SUMS];
static int64_t counts[2];
static const mha_named_tensor sums[] = {{.name = "sum", .dtype = MHA_F64, .rank = 2, .shape = {2, 3}, .data = sum},
                                        {.name = "counts", .dtype = MHA_I64, .rank = 1, .shape = {2}, .data = counts}};

static const mha_model *model(void)
{
    static mha_model *made;
    if (!made) made = fuzz_model(MODEL);
    return made;
}

static const mha_head_data *data(void)
{
    static const int32_t ids[] = {1, 2, 3};
    static const int64_t starts[] = {0, 3};
    static mha_head_data *made;
    if (!made)
        fuzz_check(mha_head_data_of_ids(model(), ids, starts, 1, NULL, &made, NULL) == MHA_OK,
                   "creating head data must succeed");
    return made;
}

static mha_status open_state(mha__state *state, const char *path, int64_t *done, mha_error *err)
{
    static char mark[17];
    const mha__state_of of = {.path = path, .options = "sums", .steps = STEPS, .mark = mark};
    MHA__TRY(mha__head_data_mark(data(), mark, err));
    return mha__state_open(state, model(), &of, sums, 2, done, err);
}

/* Returns an empty state, whose fields contain the fingerprints of model and data. */
static const mha__state *prints(void)
{
    static mha__state state;
    int64_t done;
    if (!state.ctx)
        fuzz_check(open_state(&state, files_path(fuzz_folder(), "none"), &done, NULL) == MHA_OK && done == 0,
                   "a new state must start at step 0");
    return &state;
}

static void check_again(mha__state *state, int64_t done)
{
    double first[SUMS];
    int64_t again = -1;
    mha_error err = {0};
    memcpy(first, sum, sizeof sum);
    fuzz_check(done >= 0 && done <= STEPS, "the number of completed steps must be valid");
    fuzz_check(mha__state_save(state, done, &err) == MHA_OK, "an accepted state must be saved");
    memset(sum, 0, sizeof sum);
    fuzz_check(open_state(state, state->of.path, &again, &err) == MHA_OK && again == done,
               "a saved state must be accepted again");
    fuzz_check(memcmp(first, sum, sizeof sum) == 0, "reading a saved state must reproduce it exactly");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    uint8_t *marked = fuzz_copy(bytes, n, 'M', prints()->model), *file = fuzz_copy(marked, n, 'D', prints()->of.mark);
    const char *path = fuzz_file(file, n);
    mha__state state;
    mha_error err = {0};
    int64_t done = -1;
    const mha_status status = open_state(&state, path, &done, &err);
    fuzz_refusal(status, &err, path);
    if (status == MHA_OK) check_again(&state, done);
    free(marked);
    free(file);
    return 0;
}
