/* gguf_save.c - saves a model as a GGUF file. The written file is opened as a check, and its config is compared with
 * that of the model (gguf_compare.c). */
#include "model/weights/gguf/gguf_save.h"

#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "mha/model_save.h"
#include <string.h>

typedef struct saving {
    const mha_model *m;
    mha_model_save_options o;
    mha__gguf_keys keys;
    mha__gguf_tensors tensors;
} saving;

static mha_status check(void *user, const char *path, mha_error *err)
{
    const mha__gguf_tensors *s = user;
    const mha_model_options o = {.size = sizeof o, .no_weights = 1};
    mha_model *written = NULL;
    mha_status status = mha_model_open(s->m->ctx, path, &o, &written, err);
    if (status == MHA_OK) status = mha__gguf_compare(s->m, written, s->arch->name, err);
    mha_model_free(written);
    return status;
}

static mha_status save(saving *s, const char *path, mha_error *err)
{
    mha__gguf_tensors *t = &s->tensors;
    MHA__TRY(mha__gguf_expressible(s->m, t->arch, err));
    MHA__TRY(mha__gguf_save_keys(s->m, t->arch, &s->keys, err));
    MHA__TRY(mha__gguf_list_tensors(t, err));
    return mha__gguf_write(path, s->o.overwrite != 0, &s->keys, t->list, t->count, mha__gguf_read_tensor, check, t,
                           err);
}

static mha_status check_options(const mha_model_save_options *o, mha_error *err)
{
    if (o->dtype && o->dtype != MHA_F32 && o->dtype != MHA_BF16 && o->dtype != MHA_F16 && o->dtype != MHA_Q8_0)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_save_options: dtype must be one of f32, bf16, f16, q8_0 (got %s)",
                         mha__quote_dtype(&(mha__quoted){0}, o->dtype));
    if (o->count || o->tensors)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_model_save_options: count must be 0 and tensors NULL in a GGUF file (got count %lld)",
                         (long long)o->count);
    if (o->config_json)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_model_save_options: config_json must be NULL in a GGUF file (got a config)");
    return MHA_OK;
}

mha_status mha_model_save_gguf(const mha_model *model, const char *path, const mha_model_save_options *options,
                               mha_error *err)
{
    if (!model || !path)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_save_gguf: %s must not be NULL", model ? "path" : "model");
    mha_model_save_options o;
    MHA__TRY(mha__options_read(&o, sizeof o, options, "mha_model_save_options", err));
    MHA__TRY(check_options(&o, err));
    const mha__family *family = mha__family_find(model->info.family);
    if (family && family->bidirectional == model->config.family)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "use_bidirectional_attention must be false in a GGUF file (got true)");
    saving *s = mha__calloc(model->ctx, 1, sizeof *s);
    if (!s) return mha__no_memory(err, sizeof *s, "a GGUF file");
    const mha__gguf_arch *arch = mha__gguf_arch_of(model->info.family);
    if (arch && arch->seq2seq) arch = mha__gguf_arch_named(arch->name, strlen(arch->name), model->config.gated);
    s->m = model;
    s->o = o;
    s->keys.ctx = model->ctx;
    s->tensors.m = model;
    s->tensors.arch = arch;
    s->tensors.dtype = o.dtype;
    char names[200];
    mha__gguf_arch_names(names, sizeof names);
    const mha_status status =
        arch ? save(s, path, err)
             : mha__fail(err, MHA_ERR_UNSUPPORTED, "model_type must be one of %s in a GGUF file (got %s)", names,
                         model->info.family);
    mha__gguf_keys_free(&s->keys);
    mha__gguf_tensors_free(&s->tensors);
    mha__free(model->ctx, s);
    return status;
}
