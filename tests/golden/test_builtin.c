/* test_builtin.c - checks the statements of docs/builtin-model.md about the built-in model: its size, its loss on
 * held-out texts, its heads, and their effect on copying. */
#include "mha/generate.h"
#include "mha/heads.h"
#include "mha/rng.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FOLDER MHA_TEST_DATA "/../../../share/mha/builtin"
enum { BYTES_MAX = 2000000, LAYERS = 2, HEADS = 8, TOTAL = LAYERS * HEADS, PROBES = 8, PERIOD = 24, LINES_MAX = 256 };

static mha_model *model;
static mha_heads *heads; /* measured on the held-out texts */
static mha_head_data *held_out;

/* ---- model folder ---- */

static void size_and_shape(void **state)
{
    (void)state;
    DIR *folder = opendir(FOLDER);
    assert_non_null(folder);
    long long bytes = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        struct stat st;
        if (stat(files_path(FOLDER, entry->d_name), &st) == 0 && S_ISREG(st.st_mode)) bytes += st.st_size;
    }
    closedir(folder);
    printf("the folder has %lld bytes\n", bytes);
    assert_in_range(bytes, 1, BYTES_MAX);
    const mha_model_info *info = mha_model_describe(model);
    assert_true(info->causal && info->logits && info->dtype == MHA_BF16);
    assert_int_equal(info->layers, LAYERS);
    assert_int_equal(info->heads, HEADS);
}

/* ---- held-out loss ---- */

/* Returns the mean loss in nats over all tokens except the first of each text. */
static double loss_of(const mha_head_data *data)
{
    double sum = 0;
    int64_t count = 0;
    mha_error err = {0};
    for (int64_t i = 0; i < mha_head_data_count(data); i++) {
        int64_t n;
        const int32_t *ids = mha_head_data_ids(data, i, &n);
        float *logprob = malloc((size_t)n * sizeof *logprob);
        if (mha_model_score(model, ids, n, logprob, &err) != MHA_OK) fail_msg("%s", err.message);
        for (int64_t t = 0; t + 1 < n; t++)
            sum -= (double)logprob[t];
        count += n - 1;
        free(logprob);
    }
    return sum / (double)count;
}

/* Returns the unigram entropy of the tokens, the lowest loss of a model that predicts from frequencies only. */
static double unigram_loss(const mha_head_data *data)
{
    const int64_t vocab = mha_model_describe(model)->vocab;
    double *counts = calloc((size_t)vocab, sizeof *counts), total = 0, entropy = 0;
    for (int64_t i = 0; i < mha_head_data_count(data); i++) {
        int64_t n;
        const int32_t *ids = mha_head_data_ids(data, i, &n);
        for (int64_t t = 1; t < n; t++, total++)
            counts[ids[t]]++;
    }
    for (int64_t v = 0; v < vocab; v++)
        if (counts[v] > 0) entropy -= counts[v] / total * log(counts[v] / total);
    free(counts);
    return entropy;
}

static void far_below_the_unigram_loss(void **state)
{
    (void)state;
    const double loss = loss_of(held_out), unigram = unigram_loss(held_out);
    printf("held-out loss %.3f, unigram loss %.3f\n", loss, unigram);
    assert_true(unigram > 5);
    assert_true(loss < unigram / 2);
}

/* ---- head labels ---- */

static double value(int at, mha_head_metric metric)
{
    return mha_heads_value(heads, at / HEADS, at % HEADS, metric);
}

static mha_head_label label(int at)
{
    return mha_heads_label(heads, at / HEADS, at % HEADS);
}

static int count_of(mha_head_label wanted, mha_head_metric metric, double *best)
{
    int count = 0;
    *best = 0;
    for (int at = 0; at < TOTAL; at++) {
        if (label(at) != wanted) continue;
        count++;
        *best = fmax(*best, value(at, metric));
    }
    return count;
}

static void induction_and_previous_token_heads(void **state)
{
    (void)state;
    double induction, previous;
    const int inductions = count_of(MHA_LABEL_INDUCTION, MHA_HEAD_INDUCTION_PROBE, &induction);
    const int previouses = count_of(MHA_LABEL_PREV, MHA_HEAD_PREV, &previous);
    printf("%d induction heads, the best %.2f; %d previous-token heads, the best %.2f\n", inductions, induction,
           previouses, previous);
    assert_true(inductions >= 1 && induction > 0.6);
    assert_true(previouses >= 1 && previous > 0.6);
    for (int h = 0; h < HEADS; h++) /* layer 0 must have no induction head, because induction requires two layers */
        assert_int_not_equal(label(h), MHA_LABEL_INDUCTION);
}

/* ---- copying by induction heads ---- */

/* Returns the loss on the second copies of random token sequences, which do not occur in the training texts; `gates`
 * [TOTAL]. */
static double copying_loss(const float *gates)
{
    const int64_t vocab = mha_model_describe(model)->vocab, length = 2 * PERIOD;
    float *logits = malloc((size_t)(length * vocab) * sizeof *logits);
    double sum = 0;
    mha_rng rng;
    mha_rng_manual_seed(&rng, 5);
    for (int probe = 0; probe < PROBES; probe++) {
        int32_t ids[2 * PERIOD];
        mha_error err = {0};
        for (int i = 0; i < PERIOD; i++)
            ids[i] = ids[i + PERIOD] = (int32_t)(vocab / 4 + (int64_t)(mha_rng_next(&rng) % (uint64_t)(vocab / 2)));
        const mha_model_input in = {.size = sizeof in, .batch = 1, .length = length, .ids = ids, .gates = gates};
        const mha_model_output out = {.size = sizeof out, .logits = logits};
        if (mha_model_forward(model, &in, &out, &err) != MHA_OK) fail_msg("%s", err.message);
        for (int i = PERIOD; i + 1 < length; i++) {
            const float *row = logits + i * vocab;
            double all = 0;
            for (int64_t v = 0; v < vocab; v++)
                all += exp((double)row[v] - (double)row[ids[i + 1]]);
            sum += log(all);
        }
    }
    free(logits);
    return sum / (PROBES * (PERIOD - 1));
}

static double copying_without(const uint8_t *gone)
{
    float gates[TOTAL];
    for (int at = 0; at < TOTAL; at++)
        gates[at] = gone[at] ? 0 : 1;
    return copying_loss(gates);
}

/* Only the induction heads of layer 1 must be necessary for copying; its other heads must have no effect. Induction
 * heads find the position with the output of the previous-token heads of layer 0. */
static void copying_needs_the_induction_heads(void **state)
{
    (void)state;
    uint8_t none[TOTAL] = {0}, induction[TOTAL] = {0}, previous[TOTAL] = {0}, beside[TOTAL] = {0};
    for (int at = 0; at < TOTAL; at++) {
        induction[at] = label(at) == MHA_LABEL_INDUCTION;
        previous[at] = label(at) == MHA_LABEL_PREV;
        beside[at] = at >= HEADS && !induction[at];
    }
    const double whole = copying_without(none), lost = copying_without(induction);
    const double blind = copying_without(previous), kept = copying_without(beside);
    printf("loss on the second copy %.2f; without induction heads %.2f, previous-token heads %.2f, others of layer 1 "
           "%.2f\n",
           whole, lost, blind, kept);
    assert_true(whole < 2.5); /* a uniform prediction has the loss ln 1024 = 6.9 */
    assert_true(lost > whole + 4);
    assert_true(blind > whole + 2);
    assert_true(kept < whole + 1);
}

/* ---- generated text ---- */

static void it_repeats_the_prompt(void **state)
{
    (void)state;
    static const char text[] = "Repeat after me: wug dax blicket toma fep.";
    enum { MAX = 24 };
    mha_encoding *tokens;
    mha_error err = {0};
    int32_t ids[MAX];
    int64_t length;
    char *said;
    const mha_tokenizer *tokenizer = mha_model_tokenizer(model);
    assert_int_equal(mha_tokenizer_encode(tokenizer, text, strlen(text), NULL, 0, NULL, &tokens, &err), MHA_OK);
    const mha_prompt prompt = {tokens->ids, tokens->count};
    const mha_generate_options o = {.size = sizeof o, .max_new = MAX};
    if (mha_model_generate(model, &prompt, 1, &o, ids, &length, &err) != MHA_OK) fail_msg("%s", err.message);
    assert_int_equal(mha_tokenizer_decode(tokenizer, ids, length, 1, &said, NULL, &err), MHA_OK);
    assert_string_equal(said, " wug dax blicket toma fep.");
    mha_tokenizer_text_free(tokenizer, said);
    mha_encoding_free(tokens);
}

/* ---- setup ---- */

static int set_up(void **state)
{
    (void)state;
    size_t bytes;
    char *text = files_read(MHA_TEST_DATA "/builtin/held_out.txt", &bytes);
    const char *lines[LINES_MAX];
    int64_t count = 0;
    mha_error err = {0};
    for (char *line = strtok(text, "\n"); line && count < LINES_MAX; line = strtok(NULL, "\n"))
        lines[count++] = line;
    model = case_model(NULL, FOLDER, NULL);
    const bool done = mha_head_data_of_texts(model, lines, count, NULL, &held_out, &err) == MHA_OK &&
                      mha_heads_measure_data(model, held_out, NULL, &heads, &err) == MHA_OK;
    free(text);
    if (!done) printf("%s\n", err.message);
    return done ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    mha_heads_free(heads);
    mha_head_data_free(held_out);
    mha_model_free(model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(size_and_shape),
        cmocka_unit_test(far_below_the_unigram_loss),
        cmocka_unit_test(induction_and_previous_token_heads),
        cmocka_unit_test(copying_needs_the_induction_heads),
        cmocka_unit_test(it_repeats_the_prompt),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
