/* train_induction.c - trains induction heads. A model of two attention layers without feed-forward learns random
 * sequences that repeat themselves. The only way to predict them is to find the token after the last occurrence of the
 * current token. This requires two heads in sequence: one that attends to the previous token, and one that attends to
 * the token whose previous token is the current one (Elhage et al. 2021; Olsson et al. 2022).
 *
 *     train_induction [FOLDER]     saves the model in FOLDER: `mha heads -m FOLDER --ids ...` gives the same labels
 *
 * Fails unless induction heads form, removing them destroys the prediction, and removing as many other heads does
 * not. */
#include <math.h>
#include <mha/mha.h>
#include <stdio.h>
#include <string.h>

/* The config of the model. The second layer has no positions, so it finds keys only by their content. It has fewer
 * heads than the first layer because all of its heads become induction heads, and other heads are needed for
 * comparison. */
enum { VOCAB = 64, LAYERS = 2, HEADS = 6, BATCH = 32, TOKENS = 48, STEPS = 600, EVERY = 50, ALL = LAYERS * HEADS };
static const char config[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 64, \"hidden_size\": 64, \"head_dim\": 16, \"num_hidden_layers\": 2,"
    " \"num_attention_heads\": 6, \"intermediate_size\": 64, \"max_position_embeddings\": 64, \"rope_theta\": 100,"
    " \"attention_bias\": true, \"mha.heads\": [[0, 1, 2, 3, 4, 5], [0, 1, 2]], \"mha.feed_forward\": false,"
    " \"mha.attention\": [null, {\"rotary\": false}]}";

static int32_t ids[BATCH * TOKENS], labels[BATCH * TOKENS];

/* Samples random tokens that repeat with a period of 8 to 24. The labels are the tokens that the repetition determines:
 * all except the first copy and the token after it. */
static void draw(mha_rng *rng)
{
    for (int b = 0; b < BATCH; b++) {
        int32_t *text = ids + b * TOKENS, *wanted = labels + b * TOKENS;
        const int period = 8 + (int)(mha_rng_next(rng) % 17);
        for (int i = 0; i < TOKENS; i++) {
            text[i] = i < period ? (int32_t)(mha_rng_next(rng) % VOCAB) : text[i - period];
            wanted[i] = i <= period ? MHA_IGNORE : text[i];
        }
    }
}

/* Computes the loss on the sequences that `draw` sampled last, without the heads in `removed`. */
static mha_status loss_without(mha_trainer *trainer, const uint8_t removed[ALL], double *loss, mha_error *err)
{
    float gates[LAYERS * BATCH * HEADS];
    for (int n = 0; n < LAYERS * BATCH * HEADS; n++)
        gates[n] = !removed[n / (BATCH * HEADS) * HEADS + n % HEADS];
    const mha_model_input in = {.size = sizeof in, .batch = BATCH, .length = TOKENS, .ids = ids, .gates = gates};
    const mha_train_batch batch = {.input = &in, .labels = labels};
    return mha_trainer_loss(trainer, &batch, 1, loss, NULL, err);
}

/* Measures every head on the sequences that `draw` sampled last, and on the probe texts that the published score
 * requires. */
static mha_status measure(const mha_model *model, mha_heads **heads, mha_error *err)
{
    int64_t starts[BATCH + 1];
    mha_head_data *data = NULL;
    for (int b = 0; b <= BATCH; b++)
        starts[b] = b * TOKENS;
    mha_status status = mha_head_data_of_ids(model, ids, starts, BATCH, NULL, &data, err);
    if (status == MHA_OK) status = mha_heads_measure_data(model, data, NULL, heads, err);
    mha_head_data_free(data);
    return status;
}

static void print_scores(const mha_heads *heads, const mha_train_report *report)
{
    printf("%5lld %8.3f  ", (long long)report->step, report->loss);
    for (int64_t layer = 0; layer < LAYERS; layer++)
        for (int64_t h = 0; h < mha_heads_count(heads, layer); h++)
            printf(" %5.2f", mha_heads_value(heads, layer, h, layer ? MHA_HEAD_INDUCTION_PROBE : MHA_HEAD_PREV));
    printf("\n");
}

static mha_status learn(mha_trainer *trainer, mha_rng *rng, mha_error *err)
{
    const mha_model_input in = {.size = sizeof in, .batch = BATCH, .length = TOKENS, .ids = ids};
    const mha_train_batch batch = {.input = &in, .labels = labels};
    mha_status status = MHA_OK;
    printf("                 layer 0: mass on the previous token   layer 1: induction score\n step     loss  ");
    for (int n = 0; n < 9; n++)
        printf("   %d.%d", n / HEADS, n % HEADS);
    printf("\n");
    for (int step = 1; status == MHA_OK && step <= STEPS; step++) {
        mha_train_report report;
        mha_heads *heads = NULL;
        draw(rng);
        status = mha_trainer_step(trainer, &batch, 1, &report, err);
        if (status != MHA_OK || step % EVERY) continue;
        status = measure(mha_trainer_model(trainer), &heads, err);
        if (status == MHA_OK) print_scores(heads, &report);
        mha_heads_free(heads);
    }
    return status;
}

/* ---- experiment ---- */

/* Lists the heads with the given label; for MHA_HEAD_LABELS, the heads that are neither induction nor previous-token
 * heads. Returns their number. */
static int find(const mha_heads *heads, mha_head_label label, int list[ALL])
{
    int count = 0;
    for (int n = 0; n < ALL; n++) {
        const mha_head_label is = mha_heads_label(heads, n / HEADS, n % HEADS);
        const int other = is != MHA_LABEL_INDUCTION && is != MHA_LABEL_PREV;
        const int exists = n % HEADS < mha_heads_count(heads, n / HEADS);
        if (exists && (label == MHA_HEAD_LABELS ? other : is == label)) list[count++] = n;
    }
    return count;
}

static void print_list(const char *name, const int *list, int count)
{
    printf("%s", name);
    for (int i = 0; i < count; i++)
        printf(" %d.%d", list[i] / HEADS, list[i] % HEADS);
    printf("\n");
}

/* Computes the largest loss over all ways to remove `count` heads of the list. */
static mha_status worst_without(mha_trainer *trainer, const int *list, int length, int count, double *worst,
                                mha_error *err)
{
    mha_status status = MHA_OK;
    *worst = 0;
    for (unsigned some = 0; status == MHA_OK && some < 1U << length; some++) {
        uint8_t removed[ALL] = {0};
        int size = 0;
        double loss = 0;
        for (int i = 0; i < length; i++)
            size += removed[list[i]] = some >> i & 1;
        if (size == count) status = loss_without(trainer, removed, &loss, err);
        *worst = fmax(*worst, loss);
    }
    return status;
}

static int expect(int holds, const char *what)
{
    if (!holds) printf("failed: %s\n", what);
    return holds;
}

/* Prints losses in nats on new sequences. Returns 1 if the heads and losses are as expected. */
static int check_results(mha_trainer *trainer, const mha_heads *heads, mha_status *status, mha_error *err)
{
    int induction[ALL], before[ALL], others[ALL];
    const int n = find(heads, MHA_LABEL_INDUCTION, induction), p = find(heads, MHA_LABEL_PREV, before);
    const int rest = find(heads, MHA_HEAD_LABELS, others);
    double whole = 0, without = 0, worst = 0;
    const double chance = log(VOCAB);
    print_list("induction heads:     ", induction, n);
    print_list("previous-token heads:", before, p);
    print_list("others:              ", others, rest);
    if (!expect(n > 0 && p > 0 && rest >= n, "missing induction or previous-token heads, or too few other heads"))
        return 0;
    *status = worst_without(trainer, others, rest, 0, &whole, err);
    if (*status == MHA_OK) *status = worst_without(trainer, induction, n, n, &without, err);
    if (*status == MHA_OK) *status = worst_without(trainer, others, rest, n, &worst, err);
    if (*status != MHA_OK) return 0;
    printf("loss %.3f; without the induction heads %.3f, chance is ln 64 = %.3f; without any %d other heads at most"
           " %.3f, %.2f times chance\n",
           whole, without, chance, n, worst, worst / chance);
    return expect(whole < 0.25 * chance, "the model has not learned to repeat") &
           expect(without > 0.75 * chance, "the model repeats without its induction heads") &
           expect(worst < 0.25 * chance, "the model needs the other heads to repeat");
}

static mha_status run(const char *folder, int *holds, mha_error *err)
{
    const mha_model_create_options seed = {.size = sizeof seed, .seed = 1};
    const mha_train_options options = {.size = sizeof options,
                                       .rate = 6e-3,
                                       .beta2 = 0.99,
                                       .decay = 0.01,
                                       .clip = 1,
                                       .warmup = 50,
                                       .steps = STEPS,
                                       .floor = 6e-4};
    const mha_trainer_save_options as = {.size = sizeof as, .overwrite = 1, .model_only = 1};
    mha_model *model = NULL;
    mha_trainer *trainer = NULL;
    mha_heads *heads = NULL;
    mha_rng rng;
    mha_rng_manual_seed(&rng, 1);
    mha_status status = mha_model_create(NULL, config, &seed, &model, err);
    if (status == MHA_OK) status = mha_trainer_create(model, &options, &trainer, err);
    /* Saves before training, so that the program fails early if the folder cannot be written. */
    if (status == MHA_OK && folder) status = mha_trainer_save(trainer, folder, &as, err);
    if (status == MHA_OK) status = learn(trainer, &rng, err);
    draw(&rng);
    if (status == MHA_OK) status = measure(mha_trainer_model(trainer), &heads, err);
    if (status == MHA_OK) *holds = check_results(trainer, heads, &status, err);
    if (status == MHA_OK && folder) status = mha_trainer_save(trainer, folder, &as, err);
    mha_heads_free(heads);
    mha_trainer_free(trainer);
    mha_model_free(model);
    return status;
}

int main(int argc, char **argv)
{
    mha_error err;
    int holds = 0;
    if (argc > 2) return fprintf(stderr, "usage: train_induction [FOLDER]\n"), 2;
    if (run(argc > 1 ? argv[1] : NULL, &holds, &err) != MHA_OK) return fprintf(stderr, "%s\n", err.message), 1;
    if (holds) printf("the induction heads predict the repetition\n");
    return !holds;
}
