/* train.c - runs and times training steps for bench/train.py.
 *
 *     bench_train FOLDER BATCH LENGTH THREADS [f32|bf16 [MOMENTS [ISA]]]
 *
 * Each step reads BATCH * LENGTH token ids from standard input and prints a line: wall-clock seconds, CPU seconds, the
 * loss before the step, and the norm of the gradient. MOMENTS is the type of the stored moments, f32 or bf16. Exits at
 * the end of the input.
 */
#include "clock.h"
#include "mha/mha.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Training options, with the values of bench/train.py. */
static mha_train_options options = {.size = sizeof options, .rate = 1e-4, .decay = 0.1, .clip = 1};

static bool read_ids(int32_t *ids, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (scanf("%" SCNd32, &ids[i]) != 1) return false;
    return true;
}

static mha_status answer(mha_trainer *trainer, const mha_model_input *input, int32_t *ids, mha_error *error)
{
    const mha_train_batch batch = {.input = input};
    mha_train_report report;
    while (read_ids(ids, input->batch * input->length)) {
        const double wall = clock_seconds(CLOCK_MONOTONIC), cpu = clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
        const mha_status status = mha_trainer_step(trainer, &batch, 1, &report, error);
        if (status != MHA_OK) return status;
        printf("%.6f %.6f %.7f %.6f\n", clock_seconds(CLOCK_MONOTONIC) - wall,
               clock_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu, report.loss, report.norm);
        fflush(stdout);
    }
    return MHA_OK;
}

static mha_status create(mha_ctx *ctx, const char *folder, mha_trainer **trainer, mha_error *error)
{
    const mha_model_options without = {.size = sizeof without, .no_tokenizer = 1};
    mha_model *model;
    mha_status status = mha_model_open(ctx, folder, &without, &model, error);
    if (status != MHA_OK) return status;
    status = mha_trainer_create(model, &options, trainer, error);
    mha_model_free(model);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: bench_train FOLDER BATCH LENGTH THREADS [f32|bf16 [MOMENTS [ISA]]]\n");
        return 2;
    }
    const mha_ctx_options given = {.size = sizeof given, .threads = atoi(argv[4]), .isa = argc > 7 ? argv[7] : NULL};
    mha_model_input input = {.size = sizeof input, .batch = atoi(argv[2]), .length = atoi(argv[3])};
    options.dtype = argc > 5 && strcmp(argv[5], "bf16") == 0 ? MHA_BF16 : MHA_F32;
    options.moments = argc > 6 && strcmp(argv[6], "bf16") == 0 ? MHA_BF16 : MHA_F32;
    mha_ctx *ctx = NULL;
    mha_trainer *trainer = NULL;
    mha_error error = {.message = "out of memory"};
    int32_t *ids = malloc((size_t)(input.batch * input.length) * sizeof *ids);
    input.ids = ids;
    mha_status status = ids ? mha_ctx_create(&given, &ctx, &error) : MHA_ERR_MEMORY;
    if (status == MHA_OK) status = create(ctx, argv[1], &trainer, &error);
    if (status == MHA_OK) status = answer(trainer, &input, ids, &error);
    if (status != MHA_OK) fprintf(stderr, "bench_train: %s\n", error.message);
    mha_trainer_free(trainer);
    mha_ctx_free(ctx);
    free(ids);
    return status != MHA_OK;
}
