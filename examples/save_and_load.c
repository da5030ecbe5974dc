/* save_and_load.c - saves the parameters of a layer to a safetensors file, loads them into another layer, and checks
 * that both layers have bitwise identical outputs. PyTorch reads the same file with safetensors.torch.load_file.
 *
 *     save_and_load [FILE]        default: layer.safetensors; an existing file is overwritten */
#include <mha/mha.h>
#include <stdio.h>
#include <string.h>

enum { TOKENS = 4, WIDTH = 8 };
static float x[TOKENS * WIDTH], before[TOKENS * WIDTH], after[TOKENS * WIDTH];

static const mha_weight_split_options options = {
    .size = sizeof options, .d_in = WIDTH, .d_out = WIDTH, .num_heads = 2, .qkv_bias = 1};
static const mha_variant_input in = {.size = sizeof in, .batch = 1, .q_len = TOKENS, .query = x};

/* Initializes a layer, runs it, and writes its parameters. */
static mha_status save(const char *path, mha_error *err)
{
    mha_rng rng;
    mha_variant *layer = NULL;
    int64_t count = 0;
    mha_rng_manual_seed(&rng, 123);
    mha_status status = mha_rng_randn(&rng, x, TOKENS * WIDTH, err);
    if (status == MHA_OK) status = mha_weight_split_create(NULL, &options, &layer, err);
    if (status == MHA_OK) status = mha_variant_init(layer, &rng, err);
    if (status == MHA_OK) status = mha_variant_forward(layer, &in, before, NULL, err);
    const mha_named_tensor *list = status == MHA_OK ? mha_variant_parameters(layer, &count) : NULL;
    if (status == MHA_OK) status = mha_tensors_write(NULL, path, list, count, 1, err);
    mha_variant_free(layer);
    return status;
}

/* Creates another layer with the same options, fills its parameters from the file, and runs it. */
static mha_status load(const char *path, mha_error *err)
{
    mha_variant *layer = NULL;
    mha_file *file = NULL;
    int64_t count = 0;
    mha_status status = mha_weight_split_create(NULL, &options, &layer, err);
    if (status == MHA_OK) status = mha_variant_init(layer, NULL, err);
    const mha_named_tensor *list = status == MHA_OK ? mha_variant_parameters(layer, &count) : NULL;
    if (status == MHA_OK) status = mha_file_open(NULL, path, NULL, &file, err);
    if (status == MHA_OK) status = mha_tensors_read(file, list, count, err);
    if (status == MHA_OK) status = mha_variant_update(layer, err); /* packs the loaded parameters */
    if (status == MHA_OK) status = mha_variant_forward(layer, &in, after, NULL, err);
    for (int64_t n = 0; status == MHA_OK && n < mha_file_count(file); n++)
        printf("%-14s %3lld elements\n", mha_file_tensor(file, n)->name, (long long)mha_file_tensor(file, n)->elements);
    mha_file_free(file);
    mha_variant_free(layer);
    return status;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "layer.safetensors";
    mha_error err;
    mha_status status = save(path, &err);
    if (status == MHA_OK) status = load(path, &err);
    if (status != MHA_OK) return fprintf(stderr, "%s\n", err.message), 1;
    const int same = memcmp(before, after, sizeof before) == 0;
    puts(same ? "the output of the loaded layer is bitwise identical to that of the saved layer"
              : "the output of the loaded layer differs from that of the saved layer");
    return !same;
}
