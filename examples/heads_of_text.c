/* heads_of_text.c - prints statistics of every head of a checkpoint on a text of any length, without storing a map:
 * entropy in bits, mean distance, and the fraction of the attention on the first token.
 *
 *     heads_of_text FOLDER TEXT */
#include <mha/mha.h>
#include <stdio.h>
#include <string.h>

static double mean(const float *numbers, int64_t count)
{
    double sum = 0;
    for (int64_t n = 0; n < count; n++)
        sum += (double)numbers[n];
    return sum / (double)count;
}

/* Prints the statistics of one layer; called for each layer during the forward pass. For a single text, the arrays are
 * [heads, tokens]. */
static int print_layer(void *user, const mha_model_stats *s)
{
    const int64_t tokens = s->keys;
    (void)user;
    for (int64_t h = 0; h < s->heads; h++)
        printf("%5lld.%-4lld %8.3f %8.2f %8.3f\n", (long long)s->layer, (long long)h,
               mean(s->row_entropy + h * tokens, tokens), mean(s->row_distance + h * tokens, tokens),
               (double)s->received[h * tokens] / (double)tokens);
    return 0; /* a non-zero return stops the pass */
}

static mha_status run(const char *folder, const char *text, mha_error *err)
{
    mha_model *model = NULL;
    mha_encoding *words = NULL;
    mha_status status = mha_model_open(NULL, folder, NULL, &model, err);
    if (status == MHA_OK)
        status = mha_tokenizer_encode(mha_model_tokenizer(model), text, strlen(text), NULL, 0, NULL, &words, err);
    if (status == MHA_OK) {
        const mha_model_input in = {
            .size = sizeof in, .batch = 1, .length = words->count, .ids = words->ids, .type_ids = words->type_ids};
        const mha_model_output out = {.size = sizeof out, .on_stats = print_layer};
        printf("%lld tokens\n%10s %8s %8s %8s\n", (long long)words->count, "head", "bits", "distance", "first");
        status = mha_model_forward(model, &in, &out, err);
    }
    mha_encoding_free(words);
    mha_model_free(model);
    return status;
}

int main(int argc, char **argv)
{
    mha_error err;
    if (argc != 3) return fprintf(stderr, "usage: heads_of_text FOLDER TEXT\n"), 2;
    if (run(argv[1], argv[2], &err) != MHA_OK) return fprintf(stderr, "%s\n", err.message), 1;
    return 0;
}
