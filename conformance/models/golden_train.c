/* golden_train.c - compares a training step: the loss and the gradient of every parameter. Some gradients are recorded
 * in full, and all others as norm, sum and first elements. */
#include "conformance/models/golden_model.h"
#include "mha/model_grads.h"
#include "mha/seq2seq.h"
#include "mha/vision.h"
#include "output.h"
#include <math.h>
#include <string.h>

static const double LOSS_LIMIT = 1e-5,
                    GRADIENT_LIMIT = 1e-4; /* relative tolerances of the loss and of a gradient's norm */
/* A gradient with a norm below NOTHING is 0 except for rounding (such as that of the key bias without rotation). Its
 * tolerance is ROUNDING times the norm of all gradients instead. */
static const double NOTHING = 1e-6, ROUNDING = 1e-6;

typedef struct train_case {
    const verify_entry *entry;
    const mha_file *file;
    verify_case *outcome;
    verify_memory memory;
    mha_model_input input, source; /* `source` is the input of the encoder */
    int32_t *labels;               /* NULL: the loss is the sum of train/upstream times the last hidden states, or times
                                    * the pooled vectors of images */
    mha_model_input images;        /* CLIP: the images of the texts in `input` */
    const mha_named_tensor *list;
    int64_t count;
    double norm;     /* norm of all recorded gradients */
    double greatest; /* largest norm of a recorded gradient */
    double relative; /* recorded tolerance, relative to a gradient's norm; 0 = none */
} train_case;

/* ---- inputs ---- */

/* Reads token ids [B, L]. */
static int32_t *tokens(train_case *c, const char *name, mha_model_input *input)
{
    return verify_ids_of(&c->memory, c->entry, c->file, name, &input->batch, &input->length);
}

/* Reads ids and mask of a batch. */
static mha_model_input read_batch(train_case *c)
{
    return verify_texts(&c->memory, c->entry, c->file, "train/input_ids", "train/attention_mask");
}

/* Reads the images, and the texts of CLIP or the classes. */
static void read_images(train_case *c, const mha_model *model)
{
    const mha_model *vision = mha_model_vision(model);
    mha_model_input shape = {.batch = -1};
    c->images = (mha_model_input){.size = sizeof c->images};
    c->images.pixels = verify_pixels(&c->memory, c->entry, c->file, "train/pixel_values", vision, &c->images.batch);
    c->input = vision == model ? c->images : read_batch(c);
    if (vision != model || mha_file_find(c->file, "train/upstream")) return;
    c->labels = tokens(c, "train/labels", &shape);
    if (shape.batch * shape.length != c->images.batch)
        verify_fault(c->entry, "tensor \"train/labels\" must have a class for each image");
}

static void read_input(train_case *c, const mha_model *model)
{
    const bool pair = mha_file_find(c->file, "train/decoder_input_ids") != NULL;
    mha_model_input shape = {0};
    if (mha_model_vision(model)) {
        read_images(c, model);
        return;
    }
    if (mha_file_find(c->file, "train/input_features"))
        verify_features_of(&c->memory, c->entry, c->file, "train/input_features", model, &c->source);
    else
        c->source = read_batch(c);
    c->input = c->source;
    if (pair) c->input = (mha_model_input){.size = sizeof c->input, .source = &c->source};
    if (pair) c->input.ids = tokens(c, "train/decoder_input_ids", &c->input);
    if (mha_file_find(c->file, "train/upstream")) return;
    c->labels = tokens(c, "train/labels", &shape);
    if (shape.batch != c->input.batch || shape.length != c->input.length)
        verify_fault(c->entry, "tensor \"train/labels\" must have the shape of the token ids");
}

/* Checks that an encoder-decoder computes the recorded input of its decoder from the labels. */
static void check_shift(train_case *c, const mha_model *model)
{
    const int64_t count = c->input.batch * c->input.length;
    int32_t *ids = c->input.source ? verify_alloc(&c->memory, count, sizeof *ids, c->entry) : NULL;
    mha_error error = {0};
    int64_t wrong = 0;
    if (!ids) return;
    if (mha_model_shift_labels(model, c->labels, c->input.batch, c->input.length, ids, &error) != MHA_OK)
        verify_stopped(c->outcome, &error);
    for (int64_t n = 0; n < count; n++)
        wrong += ids[n] != c->input.ids[n];
    verify_measured(c->outcome, "train/decoder_input_ids", (double)wrong, 0);
}

/* Removes name prefixes that only some copies of a checkpoint have, and updates old names of norm weights. */
static const char *plain_name(const char *name, char *room, size_t capacity)
{
    static const char *const prefixes[] = {"transformer.", "bert.", "model."};
    static const char *const suffixes[][2] = {{".gamma", ".weight"}, {".beta", ".bias"}};
    for (size_t n = 0; n < sizeof prefixes / sizeof *prefixes; n++)
        if (strncmp(name, prefixes[n], strlen(prefixes[n])) == 0) name += strlen(prefixes[n]);
    for (size_t n = 0; n < sizeof suffixes / sizeof *suffixes; n++) {
        const size_t length = strlen(name), end = strlen(suffixes[n][0]);
        if (length <= end || strcmp(name + length - end, suffixes[n][0]) != 0) continue;
        snprintf(room, capacity, "%.*s%s", (int)(length - end), name, suffixes[n][1]);
        return room;
    }
    return name;
}

static const mha_named_tensor *find_gradient(const train_case *c, const char *name)
{
    char theirs[200], ours[200];
    const char *plain = plain_name(name, theirs, sizeof theirs);
    for (int64_t n = 0; n < c->count; n++)
        if (strcmp(plain, plain_name(c->list[n].name, ours, sizeof ours)) == 0) return &c->list[n];
    return NULL;
}

/* ---- comparison ---- */

/* Returns the tolerance of a gradient. A recorded tolerance is relative to the gradient's norm, or to a thousandth of
 * the largest norm if that is larger. */
static double limit_of(const train_case *c, const json_t *record)
{
    const double norm = json_number_value(json_object_get(record, "norm"));
    if (c->relative > 0) return c->relative * fmax(norm, 1e-3 * c->greatest);
    return norm < NOTHING ? ROUNDING * c->norm : GRADIENT_LIMIT * norm;
}

/* Compares a gradient that is recorded in full, by the norm of the difference. */
static void compare_whole(train_case *c, const char *name, const mha_named_tensor *got, const json_t *record)
{
    char stored[240];
    snprintf(stored, sizeof stored, "train/grad/%s", name);
    const mha_tensor *tensor = mha_file_find(c->file, stored);
    const double *want = tensor ? verify_reals(&c->memory, c->entry, tensor) : NULL;
    double off = 0;
    if (!want) return;
    if (tensor->elements != verify_elements(got)) {
        verify_fault(c->entry, "tensor \"%s\" must have %lld elements (got %lld)", cli_shown(stored),
                     (long long)verify_elements(got), (long long)tensor->elements);
        return;
    }
    for (int64_t n = 0; n < tensor->elements; n++)
        off += pow((double)((const float *)got->data)[n] - want[n], 2);
    verify_measured(c->outcome, name, sqrt(off), limit_of(c, record));
}

static void compare_summary(train_case *c, const char *name, const mha_named_tensor *got, const json_t *record)
{
    size_t n;
    json_t *first;
    const float *x = got->data;
    const double norm = json_number_value(json_object_get(record, "norm"));
    const double limit = limit_of(c, record), count = (double)verify_elements(got);
    double square = 0, sum = 0;
    for (int64_t i = 0; i < verify_elements(got); i++)
        square += (double)x[i] * (double)x[i], sum += (double)x[i];
    verify_measured(c->outcome, name, fabs(sqrt(square) - norm), limit);
    verify_measured(c->outcome, name, fabs(sum - json_number_value(json_object_get(record, "sum"))),
                    limit * sqrt(count));
    json_array_foreach(json_object_get(record, "first"), n, first) if ((double)n < count)
        verify_measured(c->outcome, name, fabs((double)x[n] - json_number_value(first)), limit);
}

static void compare_gradients(train_case *c, const json_t *record)
{
    const char *name;
    json_t *summary;
    if (json_object_size(record) == 0) verify_fault(c->entry, "\"train\" must have gradients");
    c->relative = verify_limit(c->entry, "train/grad relative to norm", 0);
    json_object_foreach((json_t *)record, name, summary)
    {
        const double norm = json_number_value(json_object_get(summary, "norm"));
        c->norm = hypot(c->norm, norm);
        c->greatest = fmax(c->greatest, norm);
    }
    json_object_foreach((json_t *)record, name, summary)
    {
        const mha_named_tensor *got = find_gradient(c, name);
        if (!got) { /* a tensor that the model does not read has a gradient of 0 */
            const double norm = json_number_value(json_object_get(summary, "norm"));
            verify_measured(c->outcome, name, norm > 0 ? INFINITY : 0, limit_of(c, summary));
            continue;
        }
        compare_summary(c, name, got, summary);
        compare_whole(c, name, got, summary);
    }
}

static mha_status label_loss(train_case *c, mha_model_grads *grads, double *loss, mha_error *error)
{
    const mha_model_loss_args args = {.size = sizeof args, .labels = c->labels};
    return mha_model_grads_loss(grads, &c->input, &args, loss, NULL, error);
}

/* Computes the sum of upstream times the last hidden states. */
static mha_status upstream_loss(train_case *c, mha_model_grads *grads, int64_t width, double *loss, mha_error *error)
{
    int64_t shape[3] = {c->input.batch, c->input.length, width};
    const int64_t count = shape[0] * shape[1] * width;
    const double *up = verify_reals(&c->memory, c->entry, verify_tensor(c->entry, c->file, "train/upstream", 3, shape));
    float *last = verify_alloc(&c->memory, 2 * count, sizeof *last, c->entry), *narrow = last ? last + count : NULL;
    const mha_model_output output = {.size = sizeof output, .last_hidden = last};
    const mha_model_gradient gradient = {.size = sizeof gradient, .last_hidden = narrow};
    if (!up || !last) return MHA_OK; /* the error is already in the entry */
    mha_status status = mha_model_grads_forward(grads, &c->input, &output, error);
    for (int64_t n = 0; n < count && status == MHA_OK; n++) {
        narrow[n] = (float)up[n];
        *loss +=
            up[n] * (up[n] != 0
                         ? (double)last[n]
                         : 0); /* hidden states of padding, where `up` is 0, must not contribute even if they are NaN */
    }
    return status == MHA_OK ? mha_model_grads_backward(grads, &gradient, error) : status;
}

/* Computes the sum of upstream times the pooled vectors of the images. */
static mha_status pooled_loss(train_case *c, mha_model_grads *grads, int64_t width, double *loss, mha_error *error)
{
    int64_t shape[2] = {c->input.batch, width};
    const int64_t count = shape[0] * width;
    const double *up = verify_reals(&c->memory, c->entry, verify_tensor(c->entry, c->file, "train/upstream", 2, shape));
    float *pooled = verify_alloc(&c->memory, 2 * count, sizeof *pooled, c->entry), *narrow = pooled + count;
    const mha_model_output output = {.size = sizeof output, .pooled = pooled};
    const mha_model_gradient gradient = {.size = sizeof gradient, .pooled = narrow};
    if (!up || !pooled) return MHA_OK; /* the error is already in the entry */
    mha_status status = mha_model_grads_forward(grads, &c->input, &output, error);
    for (int64_t n = 0; n < count && status == MHA_OK; n++) {
        narrow[n] = (float)up[n];
        *loss += up[n] * (double)pooled[n];
    }
    return status == MHA_OK ? mha_model_grads_backward(grads, &gradient, error) : status;
}

static mha_status clip_loss(train_case *c, mha_model_grads *grads, double *loss, mha_error *error)
{
    const mha_clip_loss_args args = {.size = sizeof args, .texts = &c->input, .images = &c->images};
    return mha_clip_loss(grads, &args, loss, error);
}

/* Computes the recorded loss and its gradients. */
static mha_status recorded_loss(train_case *c, const mha_model *model, mha_model_grads *grads, double *loss,
                                mha_error *error)
{
    const int64_t width = mha_model_describe(model)->hidden;
    const mha_model *vision = mha_model_vision(model);
    if (c->labels) return label_loss(c, grads, loss, error);
    if (vision && vision != model) return clip_loss(c, grads, loss, error);
    return (vision ? pooled_loss : upstream_loss)(c, grads, width, loss, error);
}

static void run(train_case *c, const mha_model *model, mha_model_grads *grads, const json_t *record)
{
    double loss = 0;
    mha_error error = {0};
    const double *want = verify_reals(&c->memory, c->entry, verify_tensor(c->entry, c->file, "train/loss", 0, NULL));
    if (!want) return;
    if (recorded_loss(c, model, grads, &loss, &error) != MHA_OK) {
        verify_stopped(c->outcome, &error);
        return;
    }
    check_shift(c, model);
    c->list = mha_model_grads_list(grads, &c->count);
    verify_measured(c->outcome, "train/loss", fabs(loss - *want), verify_limit(c->entry, "train/loss", LOSS_LIMIT));
    compare_gradients(c, json_object_get(record, "gradients"));
}

void verify_train(const verify_entry *e, const mha_file *file, const mha_model *model, verify_case *outcome)
{
    train_case c = {.entry = e, .file = file, .outcome = outcome};
    mha_model_grads *grads = NULL;
    mha_error error = {0};
    read_input(&c, model);
    if (e->error->status == MHA_OK) {
        if (mha_model_grads_create(model, NULL, &grads, &error) == MHA_OK)
            run(&c, model, grads, json_object_get(e->object, "train"));
        else
            verify_stopped(outcome, &error);
    }
    mha_model_grads_free(grads);
    verify_release(&c.memory);
}
