/* test_model_pruned.c - tests checkpoints whose layers have fewer heads than the config's head count. The reference is
 * the complete checkpoint in which the output projection columns of the removed heads are 0. */
#include "mha/model_grads.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { H = 4, D = 12, E = 48, LAYERS = 3, L = 20, VOCAB = 600 };
static const char *const tiny = "models/bert-tiny";

/* kept[l][h] is true if layer l keeps head h; layer 1 keeps all heads. */
static const bool kept[LAYERS][H] = {{true, false, true, false}, {true, true, true, true}, {false, false, false, true}};

typedef enum role { OTHER, ROWS, ROW_BIAS, COLUMNS } role;

/* Returns which elements of a tensor belong to heads (none, rows, a bias or columns), and stores the tensor's layer in
 * *layer. */
static role role_of(const char *name, int *layer)
{
    const char *at = strstr(name, "encoder.layer.");
    if (!at || sscanf(at, "encoder.layer.%d.", layer) != 1) return OTHER;
    if (strstr(name, "attention.output.dense.weight")) return COLUMNS;
    if (!strstr(name, "attention.self.")) return OTHER;
    return strstr(name, ".weight") ? ROWS : ROW_BIAS;
}

/* Copies a [rows, columns] tensor without the elements of removed heads. If `whole` is true, keeps these elements and
 * sets only the output columns of removed heads to 0. Returns the number of elements written. */
static int64_t write_part(const float *from, int64_t rows, int64_t columns, role r, int layer, bool whole, float *to)
{
    int64_t n = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            const bool removed = r != OTHER && !kept[layer][(r == COLUMNS ? j : i) / D];
            if (!removed || whole) to[n++] = removed && r == COLUMNS ? 0 : from[i * columns + j];
        }
    return n;
}

/* Writes the checkpoint without the removed heads or, if `whole` is true, with all heads and output columns of 0 for
 * the removed heads. */
static void write_weights(const char *folder, bool whole)
{
    mha_file *file = case_file("models/bert-tiny/model.safetensors");
    float *data = malloc(1 << 20), *at = data;
    json_t *header = json_object();
    for (int64_t t = 0; t < mha_file_count(file); t++) {
        const mha_tensor *tensor = mha_file_tensor(file, t);
        if (tensor->dtype != MHA_F32) continue;
        int layer = 0;
        const role r = role_of(tensor->name, &layer);
        const int64_t rows = tensor->shape[0], columns = tensor->rank == 2 ? tensor->shape[1] : 1;
        float *from = malloc((size_t)tensor->elements * sizeof *from);
        assert_int_equal(mha_tensor_read(tensor, MHA_F32, from, NULL), MHA_OK);
        const int64_t n = write_part(from, rows, columns, r, layer, whole, at);
        const int64_t width = r == COLUMNS ? n / rows : columns, height = n / width;
        json_t *shape = tensor->rank == 2 ? json_pack("[I, I]", (json_int_t)height, (json_int_t)width)
                                          : json_pack("[I]", (json_int_t)n);
        const json_int_t begin = (json_int_t)((at - data) * (int64_t)sizeof *at);
        json_object_set_new(header, tensor->name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape, "data_offsets", begin,
                                      begin + (json_int_t)(n * (int64_t)sizeof *at)));
        at += n;
        free(from);
    }
    char *text = json_dumps(header, JSON_COMPACT);
    const uint64_t n = strlen(text);
    const size_t bytes = sizeof n + n + (size_t)(at - data) * sizeof *at;
    char *out = malloc(bytes);
    memcpy(out, &n, sizeof n);
    memcpy(out + sizeof n, text, n);
    memcpy(out + sizeof n + n, data, (size_t)(at - data) * sizeof *at);
    files_write(files_path(folder, "model.safetensors"), out, bytes);
    free(out);
    free(text);
    free(data);
    json_decref(header);
    mha_file_free(file);
}

static void set_list(const char *folder, const char *list)
{
    json_t *config = json_load_file(files_path(MHA_TEST_DATA "/models/bert-tiny", "config.json"), 0, NULL);
    assert_non_null(config);
    if (list) json_object_set_new(config, "mha.heads", json_loads(list, 0, NULL));
    assert_int_equal(json_dump_file(config, files_path(folder, "config.json"), 0), 0);
    json_decref(config);
}

static void write_pruned(const char *folder)
{
    write_weights(folder, false);
    set_list(folder, "[[0, 2], [0, 1, 2, 3], [3]]");
}

static case_run run_folder(const char *folder, const int64_t *heads)
{
    mha_model *model = case_open(NULL, folder);
    int32_t ids[L];
    float hidden[L * E];
    for (int i = 0; i < L; i++)
        ids[i] = 37 * i % VOCAB;
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids};
    const mha_model_output output = {.size = sizeof output, .last_hidden = hidden};
    for (int layer = 0; layer < LAYERS; layer++)
        assert_int_equal(mha_model_describe(model)->heads_per_layer[layer], heads[layer]);
    assert_int_equal(mha_model_forward(model, &input, &output, NULL), MHA_OK);
    case_run run = {.last_hidden = malloc(sizeof hidden)};
    memcpy(run.last_hidden, hidden, sizeof hidden);
    mha_model_free(model);
    return run;
}

static void test_fewer_heads(void **state)
{
    (void)state;
    static const int64_t all[LAYERS] = {4, 4, 4}, some[LAYERS] = {2, 4, 1};
    const char *folder = case_copy(tiny);
    write_weights(folder, true);
    case_run whole = run_folder(folder, all);
    write_pruned(folder);
    case_run pruned = run_folder(folder, some);
    case_near("pruned", pruned.last_hidden, whole.last_hidden, L * E, 1e-5);
    free(whole.last_hidden);
    free(pruned.last_hidden);
    files_remove(folder);
}

/* ---- gates ---- */

/* A model, and the gradients of the sum of its last hidden states with respect to the weights and the gates. */
typedef struct taught {
    mha_model *model;
    mha_model_grads *grads;
    float hidden[L * E], dgates[LAYERS * H];
    /* the number of heads and the arguments of on_context, for each layer */
    int64_t heads[LAYERS];
    float context[LAYERS][L * H * D], dcontext[LAYERS][L * H * D], taylor[LAYERS][H * L];
} taught;

static int keep_context(void *user, const mha_model_context_gradient *g)
{
    taught *t = user;
    assert_int_equal(g->rows, L);
    assert_int_equal(g->head_dim, D);
    assert_true(g->heads >= 1 && g->heads <= H);
    const size_t bytes = (size_t)(L * g->heads * D) * sizeof(float);
    t->heads[g->layer] = g->heads;
    memcpy(t->context[g->layer], g->context, bytes);
    memcpy(t->dcontext[g->layer], g->dcontext, bytes);
    memcpy(t->taylor[g->layer], g->row_taylor, (size_t)(g->heads * L) * sizeof(float));
    return 0;
}

static taught *teach(const char *folder, bool off)
{
    taught *t = calloc(1, sizeof *t);
    int32_t ids[L];
    float gates[LAYERS * H], ones[L * E];
    for (int i = 0; i < L; i++)
        ids[i] = 37 * i % VOCAB;
    for (int n = 0; n < LAYERS * H; n++)
        gates[n] = kept[n / H][n % H];
    for (int n = 0; n < L * E; n++)
        ones[n] = (float)(n % 7 - 3);
    t->model = case_open(NULL, folder);
    const mha_model_input input = {
        .size = sizeof input, .batch = 1, .length = L, .ids = ids, .gates = off ? gates : NULL};
    const mha_model_output output = {.size = sizeof output, .last_hidden = t->hidden};
    const mha_model_gradient gradient = {.size = sizeof gradient,
                                         .last_hidden = ones,
                                         .gates = t->dgates,
                                         .on_context = keep_context,
                                         .user = t,
                                         .taylor = 1};
    assert_int_equal(mha_model_grads_create(t->model, NULL, &t->grads, NULL), MHA_OK);
    assert_int_equal(mha_model_grads_forward(t->grads, &input, &output, NULL), MHA_OK);
    assert_int_equal(mha_model_grads_backward(t->grads, &gradient, NULL), MHA_OK);
    return t;
}

static void let_go(taught *t)
{
    mha_model_grads_free(t->grads);
    mha_model_free(t->model);
    free(t);
}

/* Gates of 0 must be equivalent to removed heads: for the hidden states, for the gradients of all tensors that both
 * models have, and for those of the gates of remaining heads. */
static void test_gates_and_pruning_agree(void **state)
{
    (void)state;
    const char *folder = case_copy(tiny);
    int64_t count = 0, same = 0;
    taught *whole = teach(folder, true);
    write_pruned(folder);
    taught *pruned = teach(folder, false);
    case_near("states", pruned->hidden, whole->hidden, L * E, 1e-5);
    const mha_named_tensor *a = mha_model_grads_list(whole->grads, &count);
    const mha_named_tensor *b = mha_model_grads_list(pruned->grads, &count);
    for (int64_t n = 0; n < count; n++) {
        int64_t elements = 1;
        assert_string_equal(a[n].name, b[n].name);
        if (memcmp(a[n].shape, b[n].shape, sizeof a[n].shape) != 0) continue;
        for (int d = 0; d < a[n].rank; d++)
            elements *= a[n].shape[d];
        case_near(a[n].name, b[n].data, a[n].data, elements, 2e-4);
        same++;
    }
    assert_true(same > count / 2 && same < count);
    for (int layer = 0; layer < LAYERS; layer++) {
        int place = 0;
        for (int h = 0; h < H; h++)
            if (kept[layer][h])
                case_near("gate", &pruned->dgates[layer * H + place++], &whole->dgates[layer * H + h], 1, 2e-4);
        for (; place < H; place++)
            assert_true(pruned->dgates[layer * H + place] == 0);
    }
    let_go(whole);
    let_go(pruned);
    files_remove(folder);
}

/* Returns <context, dcontext>, summed over rows, for the head at index `place` of a layer. */
static double along(const taught *t, int layer, int64_t place)
{
    double sum = 0;
    for (int64_t n = 0; n < L * D; n++) {
        const int64_t at = (n / D * t->heads[layer] + place) * D + n % D;
        sum += (double)t->context[layer][at] * (double)t->dcontext[layer][at];
    }
    return sum;
}

/* on_context must receive only the remaining heads of a layer, in order, with the values of the complete model. */
static void test_contexts_of_remaining_heads(void **state)
{
    (void)state;
    const char *folder = case_copy(tiny);
    taught *whole = teach(folder, true);
    write_pruned(folder);
    taught *pruned = teach(folder, false);
    for (int layer = 0; layer < LAYERS; layer++) {
        int64_t place = 0;
        assert_int_equal(whole->heads[layer], H);
        for (int h = 0; h < H; h++) {
            if (!kept[layer][h]) continue;
            for (int64_t r = 0; r < L; r++) {
                const int64_t a = (r * pruned->heads[layer] + place) * D, b = (r * H + h) * D;
                case_near("context", pruned->context[layer] + a, whole->context[layer] + b, D, 2e-5);
                case_near("dcontext", pruned->dcontext[layer] + a, whole->dcontext[layer] + b, D, 2e-4);
            }
            case_near("taylor", pruned->taylor[layer] + place * L, whole->taylor[layer] + h * L, L, 2e-4);
            const float dgate = (float)along(pruned, layer, place);
            case_near("gate", &dgate, &pruned->dgates[layer * H + place], 1, 2e-4);
            place++;
        }
        assert_int_equal(pruned->heads[layer], place);
    }
    let_go(whole);
    let_go(pruned);
    files_remove(folder);
}

static void refused(const char *folder, const char *list, const char *part)
{
    mha_model *model = NULL;
    mha_error err = {0};
    set_list(folder, list);
    assert_int_equal(mha_model_open(NULL, folder, NULL, &model, &err), MHA_ERR_FORMAT);
    if (!strstr(err.message, part)) fail_msg("message must contain \"%s\" (got \"%s\")", part, err.message);
}

static void test_refused_lists(void **state)
{
    (void)state;
    const char *folder = case_copy(tiny);
    write_weights(folder, false);
    refused(folder, "[[0, 2], [0, 1, 2, 3]]", "mha.heads must have 3 elements, one list per layer (got 2)");
    refused(folder, "[[0, 2], 4, [3]]", "mha.heads[1] must be a list of heads (got 4");
    refused(folder, "[[2, 0], [0, 1, 2, 3], [3]]",
            "mha.heads[0][1] must be a head number from 0 to 3, greater than the previous one (got 0");
    refused(folder, "[[0, 0], [0, 1, 2, 3], [3]]",
            "mha.heads[0][1] must be a head number from 0 to 3, greater than the previous one (got 0");
    refused(folder, "[[0, 4], [0, 1, 2, 3], [3]]",
            "mha.heads[0][1] must be a head number from 0 to 3, greater than the previous one (got 4");
    refused(folder, "[[0, \"2\"], [0, 1, 2, 3], [3]]",
            "mha.heads[0][1] must be a head number from 0 to 3, greater than the previous one (got \"2\"");
    refused(folder, "[[0, 2], [0, 1, 2, 3], []]", "mha.heads[2] must have whole groups of 1 heads (got 0 heads)");
    refused(folder, "[[0, 2], [0, 1, 2, 3], [2, 3]]", "must be [24, 48], as config.json requires");
    refused(folder, "{}", "mha.heads");
    refused(folder, NULL, "query.weight\" must be [48, 48], as config.json requires (got [24, 48])");
    files_remove(folder);
}

/* The number of rows of a projection must be the head count times head_dim. A checkpoint with a wrong head_dim must not
 * be taken for a model with another head count. */
static void test_refused_width(void **state)
{
    (void)state;
    const char *folder = case_copy("models/gemma2-tiny");
    mha_model *model = NULL;
    mha_error err = {0};
    json_t *config = json_load_file(files_path(folder, "config.json"), 0, NULL);
    assert_int_equal(json_object_set_new(config, "head_dim", json_integer(48)), 0);
    assert_int_equal(json_dump_file(config, files_path(folder, "config.json"), 0), 0);
    assert_int_equal(mha_model_open(NULL, folder, NULL, &model, &err), MHA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "shape of tensor \"model.layers.0.self_attn.q_proj.weight\" must be "
                                        "[192, 64], as config.json requires (got [96, 64])"));
    json_decref(config);
    files_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fewer_heads),
                                       cmocka_unit_test(test_gates_and_pruning_agree),
                                       cmocka_unit_test(test_contexts_of_remaining_heads),
                                       cmocka_unit_test(test_refused_lists), cmocka_unit_test(test_refused_width)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
