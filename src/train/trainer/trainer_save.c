/* trainer_save.c - saves a trainer as a checkpoint folder, and resumes from such a folder. A checkpoint contains the
 * model, the moments, the step, and a digest of the weights that the state belongs to. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "io/safetensors/named_tensors.h"
#include "io/safetensors/safetensors_stream.h"
#include "io/tensor_file.h"
#include "math/half.h"
#include "math/hash.h"
#include "model/weights/checkpoint_folder.h"
#include "text/tokenizer.h"
#include "train/gates/trainer_gates.h"
#include "train/state_names.h"
#include "train/trainer/moments_gather.h"
#include "train/trainer_struct.h"
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "training."
#define WEIGHTS "mha.train.weights"
#define GATES "mha.train.gates"

/* ---- digest of the weights ---- */

void mha__train_mark_weights(const mha_trainer *t, char mark[17])
{
    uint64_t h = 0;
    for (int64_t n = 0; n < t->count; n++) {
        h = mha__hash(h, t->list[n].name, strlen(t->list[n].name));
        h = mha__hash(h, t->list[n].data, (size_t)t->parameter[n].count * sizeof(float));
    }
    mha__hash_print(mark, h);
}

/* ---- saving ---- */

/* The source of the files that a checkpoint contains in addition to the model. */
typedef struct extras {
    const mha_trainer *trainer;
    const mha_trainer_save_options *o;
} extras;

static const char *kind_of(const mha_trainer *t)
{
    return t->gates->o.penalty == MHA_GATES_L0 ? "l0" : "l1";
}

/* Lists all tensors of the state: the moments, then the state of the gates. */
static mha_status list_state(const mha_trainer *t, mha__outgoing *list, int64_t count, mha_error *err)
{
    const int64_t moments = 2 * t->count;
    for (int64_t n = 0; n < count; n++)
        MHA__TRY(mha__named_view(n < moments ? &t->state[n] : &t->gates->state[n - moments], &list[n].from, err));
    for (int64_t n = 0; n < moments && t->o.ranks; n++) {
        list[n].read = mha__moments_request;
        list[n].user = (void *)t;
    }
    return MHA_OK;
}

static mha_status write_state(const mha_trainer *t, const mha__folder *folder, mha_error *err)
{
    char step[24], mark[17];
    const mha_metadata meta[] = {{.key = MHA__TRAIN_STEP, .value = step},
                                 {.key = WEIGHTS, .value = mark},
                                 {.key = GATES, .value = t->gates ? kind_of(t) : ""}};
    const mha_tensors_writer_options o = {.size = sizeof o, .metadata = meta, .metadata_count = t->gates ? 3 : 2};
    const int64_t count = 2 * t->count + (t->gates ? t->gates->state_count : 0);
    mha__outgoing *list = mha__calloc(t->ctx, (size_t)count, sizeof *list);
    if (!list) return mha__no_memory(err, (size_t)count * sizeof *list, "the list of moments");
    snprintf(step, sizeof step, "%" PRId64, t->step);
    mha__train_mark_weights(t, mark);
    mha__train_moments(t);
    mha_status status = list_state(t, list, count, err);
    if (status == MHA_OK) status = mha__stream_tensors(t->ctx, folder, MHA__TRAIN_STATE, list, count, &o, err);
    mha__free(t->ctx, list);
    return status;
}

static mha_status write_extras(const void *user, mha__folder *folder, mha_error *err)
{
    const extras *b = user;
    if (b->o->aside) MHA__TRY(mha__folder_aside(folder, b->o->aside, mha__model_files, err));
    if (!b->o->model_only) MHA__TRY(write_state(b->trainer, folder, err));
    for (int64_t n = 0; n < b->o->file_count; n++)
        MHA__TRY(mha__folder_put(folder, b->o->files[n].name, b->o->files[n].data, b->o->files[n].bytes, err));
    return MHA_OK;
}

static bool is_name(const char *name)
{
    const size_t prefix = strlen(PREFIX);
    if (!name || strncmp(name, PREFIX, prefix) != 0 || !name[prefix] || strcmp(name, MHA__TRAIN_STATE) == 0)
        return false;
    for (const char *c = name; *c; c++)
        if (*c == '/' || (unsigned char)*c < ' ' || *c == 127) return false;
    return true;
}

static mha_status check_file(const mha_trainer_save_options *o, int64_t n, mha_error *err)
{
    const mha_train_file *file = &o->files[n];
    if (!is_name(file->name))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_trainer_save_options: files[%lld].name must be \"" PREFIX
                         "NAME\", not a path or \"" MHA__TRAIN_STATE "\" (got %s)",
                         (long long)n,
                         file->name ? mha__quote(&(mha__quoted){0}, file->name, strlen(file->name)) : "NULL");
    if (file->bytes && !file->data)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_trainer_save_options: files[%lld]: data must not be NULL with bytes = %zu", (long long)n,
                         file->bytes);
    for (int64_t other = 0; other < n; other++)
        if (strcmp(o->files[other].name, file->name) == 0)
            return mha__fail(err, MHA_ERR_ARG,
                             "mha_trainer_save_options: the names of files[%lld] and files[%lld] must differ",
                             (long long)other, (long long)n);
    return MHA_OK;
}

static mha_status check_files(const mha_trainer_save_options *o, mha_error *err)
{
    if (o->file_count < 0 || (o->file_count && !o->files))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_trainer_save_options: file_count must be the number of entries in files (got %lld, %s)",
                         (long long)o->file_count, o->files ? "given" : "NULL");
    for (int64_t n = 0; n < o->file_count; n++)
        MHA__TRY(check_file(o, n, err));
    return MHA_OK;
}

/* If the checkpoint stores one parameter under two names, adds the trained values under the second name to the list. */
static void add_twin(const mha_trainer *t, mha__role learns, mha__role twin, mha_named_tensor *list, int64_t *count)
{
    const mha_tensor *own = mha__weights_tensor(&t->model->outer, learns, -1, false);
    const mha_tensor *other = mha__weights_tensor(&t->model->outer, twin, -1, false);
    if (!own || !other || own == other) return;
    mha_named_tensor *to = &list[(*count)++];
    *to = (mha_named_tensor){.name = other->name, .dtype = MHA_F32, .rank = own->rank, .data = (void *)own->data};
    memcpy(to->shape, own->shape, (size_t)own->rank * sizeof *to->shape);
}

static int64_t list_twins(const mha_trainer *t, mha_named_tensor list[2])
{
    const mha_model *m = t->model;
    int64_t count = 0;
    if (m->config.tied) add_twin(t, MHA__WORDS, MHA__LM_HEAD, list, &count);
    if (m->config.tied)
        add_twin(t, m->lm_bias, m->lm_bias == MHA__LM_BIAS ? MHA__LM_TIED_BIAS : MHA__LM_BIAS, list, &count);
    return count;
}

static mha_status save(const mha_trainer *t, const char *folder, const mha_trainer_save_options *options,
                       mha_error *err)
{
    mha_trainer_save_options o;
    mha_named_tensor twins[2];
    if (!folder) return mha__fail(err, MHA_ERR_ARG, "mha_trainer_save: folder must not be NULL");
    MHA__TRY(mha__options_read(&o, sizeof o, options, "mha_trainer_save_options", err));
    if (o.dtype && !o.model_only)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_trainer_save_options: dtype must be unset unless model_only is set (got %s)",
                         mha_dtype_name(o.dtype));
    MHA__TRY(check_files(&o, err));
    MHA__TRY(mha__train_check_weights(t, err));
    const mha_model_save_options how = {.size = sizeof how,
                                        .dtype = o.dtype ? o.dtype : MHA_F32,
                                        .overwrite = o.overwrite,
                                        .tensors = twins,
                                        .count = list_twins(t, twins)};
    return mha__model_save_with(t->model, folder, &how, write_extras, &(extras){t, &o}, err);
}

/* Saves a checkpoint that includes the moments of all ranks. */
static mha_status save_shared(const mha_trainer *t, const char *folder, const mha_trainer_save_options *options,
                              mha_error *err)
{
    mha_error why = {0};
    MHA__TRY(mha__moments_share(t, err));
    mha_status status = MHA_OK;
    if (mha__train_rank(t) == 0) status = save(t, folder, options, &why);
    status = mha__moments_unshare(t, status, &why);
    if (status != MHA_OK && err) *err = why;
    return status;
}

/* Returns true if the options are valid and have model_only. Errors are reported by save, after the ranks have met. */
static bool is_model_only(const mha_trainer_save_options *options)
{
    mha_trainer_save_options o;
    return mha__options_read(&o, sizeof o, options, "mha_trainer_save_options", NULL) == MHA_OK && o.model_only;
}

mha_status mha_trainer_save(const mha_trainer *t, const char *folder, const mha_trainer_save_options *options,
                            mha_error *err)
{
    if (!t) return mha__fail(err, MHA_ERR_ARG, "mha_trainer_save: trainer must not be NULL");
    const bool shared = t->o.ranks && !is_model_only(options);
    return (shared ? save_shared : save)(t, folder, options, err);
}

/* ---- resuming ---- */

static mha_status need(const mha_file *file, const char *key, const char **value, mha_error *err)
{
    const char *path = mha_file_path(file);
    *value = mha__metadata_find(file, key, NULL);
    if (*value) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT, "%s: %s is missing", mha__quote(&(mha__quoted){0}, path, strlen(path)), key);
}

static mha_status read_step(const mha_file *file, int64_t *step, mha_error *err)
{
    const char *value, *path = mha_file_path(file);
    char *end = NULL;
    MHA__TRY(need(file, MHA__TRAIN_STEP, &value, err));
    errno = 0;
    *step = strtoll(value, &end, 10);
    if (end != value && !*end && !errno && *step >= 0 && *step < INT64_MAX) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT, "%s: " MHA__TRAIN_STEP " must be a number of steps (got \"%s\")",
                     mha__quote(&(mha__quoted){0}, path, strlen(path)),
                     mha__quote(&(mha__quoted){0}, value, strlen(value)));
}

/* Checks that the state belongs to the weights in the folder. With other weights, the moments would be meaningless. */
static mha_status check_weights(const mha_trainer *t, const mha_file *file, mha_error *err)
{
    char mine[17];
    const char *theirs, *path = mha_file_path(file);
    MHA__TRY(need(file, WEIGHTS, &theirs, err));
    mha__train_mark_weights(t, mine);
    if (strcmp(mine, theirs) == 0) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT, "%s: " WEIGHTS " must match the weights in the folder (got %.16s, not %s)",
                     mha__quote(&(mha__quoted){0}, path, strlen(path)),
                     mha__quote(&(mha__quoted){0}, theirs, strlen(theirs)), mine);
}

/* Checks that the file stores moments in the type of the trainer. Moments are not converted: rounding to bf16 would
 * change the run, and a forgotten option would double the memory. */
static mha_status check_type(const mha_trainer *t, const mha_file *file, mha_error *err)
{
    mha__quoted q[2] = {0};
    const char *path = mha_file_path(file);
    for (int64_t n = 0; n < 2 * t->count; n++) {
        const mha_tensor *stored = mha_file_find(file, t->state[n].name);
        if (!stored || stored->dtype == t->o.moments) continue; /* a missing tensor is reported when it is read */
        return mha__fail(err, MHA_ERR_ARG, "%s: the type of the tensor \"%s\" must be %s, as set by moments (got %s)",
                         mha__quote(&q[0], path, strlen(path)),
                         mha__quote(&q[1], t->state[n].name, strlen(t->state[n].name)), mha_dtype_name(t->o.moments),
                         mha_dtype_name(stored->dtype));
    }
    return MHA_OK;
}

/* Returns element i of the elements of state tensor n that this process updates. */
static float moment(const mha_trainer *t, int64_t n, int64_t i)
{
    const void *data = t->state[n].data;
    return t->o.moments == MHA_BF16 ? mha__bf16_to_f32(((const uint16_t *)data)[i]) : ((const float *)data)[i];
}

/* Checks the moments that were read. A mean must be finite. A square must also be at least 0, because the update
 * divides by its root. */
static mha_status check_moments(const mha_trainer *t, const mha_file *file, mha_error *err)
{
    mha__quoted q[2] = {0};
    const char *path = mha_file_path(file);
    for (int64_t n = 0; n < 2 * t->count; n++) {
        const float min = n % 2 ? 0 : -FLT_MAX;
        float x = 0;
        int64_t i = 0;
        for (; i < t->parameter[n / 2].own_count; i++) {
            x = moment(t, n, i);
            if (!(x >= min && x <= FLT_MAX)) break;
        }
        if (i == t->parameter[n / 2].own_count) continue;
        return mha__fail(err, MHA_ERR_FORMAT, "%s: elements of the tensor \"%s\" must be finite%s (got %g)",
                         mha__quote(&q[0], path, strlen(path)),
                         mha__quote(&q[1], t->state[n].name, strlen(t->state[n].name)), n % 2 ? " and at least 0" : "",
                         (double)x);
    }
    return MHA_OK;
}

/* Checks gates.end for a state without gates. The trainer's gates then start open, so steps must remain to train
 * them. */
static mha_status check_gates_end(const mha_trainer *t, mha_error *err)
{
    const int64_t end = t->gates->o.end;
    if (!end || end > t->step) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "gates.end must be above %lld, the step at which the gates begin (got %lld)",
                     (long long)t->step, (long long)end);
}

static mha_status read_gates(mha_trainer *t, const mha_file *file, mha_error *err)
{
    const char *kind = mha__metadata_find(file, GATES, NULL), *path = mha_file_path(file);
    mha__quoted q[2] = {0};
    if (!t->gates) return MHA_OK;
    if (!kind) return check_gates_end(t, err);
    if (strcmp(kind, kind_of(t)) != 0)
        return mha__fail(err, MHA_ERR_ARG, "gates.penalty must be \"%s\", as in %s (got \"%s\")",
                         mha__quote(&q[1], kind, strlen(kind)), mha__quote(&q[0], path, strlen(path)), kind_of(t));
    MHA__TRY(mha_tensors_read(file, t->gates->state, t->gates->state_count, err));
    return mha__gates_resume(t, err);
}

static mha_status read_state(mha_trainer *t, const char *folder, mha_error *err)
{
    mha_file *file = NULL;
    const size_t bytes = strlen(folder) + sizeof "/" MHA__TRAIN_STATE;
    char *path = mha__alloc(t->ctx, bytes);
    if (!path) return mha__no_memory(err, bytes, "a file name");
    snprintf(path, bytes, "%s/" MHA__TRAIN_STATE, folder);
    mha_status status = mha_file_open(t->ctx, path, NULL, &file, err);
    if (status == MHA_OK) status = read_step(file, &t->step, err);
    if (status == MHA_OK) status = check_weights(t, file, err);
    if (status == MHA_OK) status = check_type(t, file, err);
    if (status == MHA_OK) mha__train_moments(t);
    if (status == MHA_OK) status = mha__train_moments_read(t, file, err);
    if (status == MHA_OK) status = check_moments(t, file, err);
    if (status == MHA_OK) status = read_gates(t, file, err);
    mha_file_free(file);
    mha__free(t->ctx, path);
    return status;
}

mha_status mha_trainer_resume(mha_ctx *ctx, const char *folder, const mha_train_options *options, mha_trainer **out,
                              mha_error *err)
{
    mha_model *model = NULL;
    if (!folder || !out)
        return mha__fail(err, MHA_ERR_ARG, "mha_trainer_resume: %s must not be NULL", out ? "folder" : "out");
    *out = NULL;
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = !mha__source_exists(folder, MHA__TOKENIZER_FILE)};
    MHA__TRY(mha_model_open(ctx, folder, &o, &model, err));
    mha_status status = mha_trainer_create(model, options, out, err);
    mha_model_free(model);
    if (status == MHA_OK) status = read_state(*out, folder, err);
    if (status == MHA_OK) return MHA_OK;
    mha_trainer_free(*out);
    *out = NULL;
    return status;
}
