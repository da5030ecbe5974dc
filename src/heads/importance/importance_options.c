/* importance_options.c - checks the options of importance scores for a model and data, and sets defaults. */
#include "base/error.h"
#include "base/struct_size.h"
#include "heads/importance/importance.h"
#include "mha/layer.h"
#include "model/model_struct.h"
#include <math.h>

enum { PROBES = 4, PROBES_MAX = 4096 };
static const double SCALE = 5;

static mha_status check_numbers(const mha_importance_options *o, mha_error *err)
{
    if ((unsigned)o->by >= MHA_IMPORTANCE_SCORES || (unsigned)o->loss > MHA_LOSS_CLASSES)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_importance_options: by must be a value of mha_importance_score, and loss a value of "
                         "mha_head_loss (got %d, %d)",
                         (int)o->by, (int)o->loss);
    if (!isfinite(o->loss_scale) || o->loss_scale < 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_importance_options: loss_scale must be at least 0 (got %g)",
                         o->loss_scale);
    if (o->probes < 0 || o->probes > PROBES_MAX)
        return mha__fail(err, MHA_ERR_ARG, "mha_importance_options: probes must be from 0 to %d (got %d)", PROBES_MAX,
                         o->probes);
    if (o->batch_texts < 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_importance_options: batch_texts must be at least 0 (got %lld)",
                         (long long)o->batch_texts);
    if (!(o->settle >= 0 && o->settle <= 1))
        return mha__fail(err, MHA_ERR_ARG, "mha_importance_options: settle must be from 0 to 1 (got %g)", o->settle);
    return MHA_OK;
}

int64_t mha__importance_labels(const mha_head_data *data)
{
    return mha__head_data_image_bytes(data) ? mha_head_data_count(data) : mha_head_data_tokens(data);
}

static mha_status check_labels(const mha_model_info *info, const mha_head_data *data, const int32_t *labels,
                               mha_error *err)
{
    for (int64_t t = 0; labels && t < mha__importance_labels(data); t++)
        if (labels[t] != MHA_IGNORE && (labels[t] < 0 || labels[t] >= info->logit_width))
            return mha__fail(err, MHA_ERR_ARG, "labels[%lld] must be from 0 to %lld, or %d (got %d)", (long long)t,
                             (long long)info->logit_width - 1, MHA_IGNORE, (int)labels[t]);
    return MHA_OK;
}

/* Checks that model and data support the loss. */
static mha_status check_loss(const mha_model_info *info, const mha_head_data *data, const mha_importance_options *o,
                             mha_error *err)
{
    const char *key = mha_head_loss_key(o->loss);
    const long long count = (long long)mha_head_data_count(data);
    if (o->loss == MHA_LOSS_NONE)
        return mha__fail(err, MHA_ERR_ARG,
                         "%s requires a loss: use pairs of texts, labels of tokens or of images, or a decoder with "
                         "logits (jacobian_probe requires none)",
                         mha_importance_score_key(o->by));
    if (info->encoder_decoder && (o->loss != MHA_LOSS_LM || o->labels))
        return mha__fail(err, MHA_ERR_ARG, "the loss of %s must be \"lm\" without labels, the cross entropy of targets",
                         info->family);
    if (o->loss == MHA_LOSS_PAIRS) {
        if (count % 2 || count < 4)
            return mha__fail(err, MHA_ERR_ARG,
                             "data must have at least 2 pairs of texts for the loss \"pairs\" (got %lld texts)", count);
        if (o->batch_texts == 1)
            return mha__fail(err, MHA_ERR_ARG, "batch_texts must be at least 2 for the loss \"pairs\" (got 1)");
        return MHA_OK;
    }
    if (!info->logits) return mha__fail(err, MHA_ERR_ARG, "the model must have logits for the loss \"%s\"", key);
    if ((info->classes > 0) != (o->loss == MHA_LOSS_CLASSES))
        return mha__fail(err, MHA_ERR_ARG, "the loss of %s must%s be \"classes\" (got \"%s\")", info->family,
                         info->classes ? "" : " not", key);
    if (info->classes && !o->labels)
        return mha__fail(err, MHA_ERR_ARG, "labels must not be NULL for the loss \"classes\"");
    if (o->loss == MHA_LOSS_LM && !info->causal)
        return mha__fail(err, MHA_ERR_ARG,
                         "the model must be a decoder for the loss \"lm\" (an encoder attends to the next token)");
    if (o->loss == MHA_LOSS_MLM && (info->causal || !o->labels))
        return mha__fail(err, MHA_ERR_ARG,
                         "the model must be an encoder, and labels must not be NULL, for the loss \"mlm\"");
    return check_labels(info, data, o->labels, err);
}

static mha_head_loss usual_loss(const mha_model_info *info, const mha_importance_options *o)
{
    if (!info->logits) return MHA_LOSS_NONE;
    if (info->causal) return MHA_LOSS_LM;
    if (info->classes) return o->labels ? MHA_LOSS_CLASSES : MHA_LOSS_NONE;
    return o->labels ? MHA_LOSS_MLM : MHA_LOSS_NONE;
}

mha_status mha__importance_options_read(const mha_model *model, const mha_head_data *data,
                                        const mha_importance_options *given, mha_importance_options *own,
                                        mha_error *err)
{
    const mha_model_info *info = mha_model_describe(model);
    MHA__TRY(mha__options_need(own, sizeof *own, given, "mha_importance_options", err));
    MHA__TRY(check_numbers(own, err));
    const mha__importance_rule *rule = &mha__importance_rules[own->by];
    if ((rule->weights || own->by == MHA_IMPORTANCE_GRADMAG) && model->config.family->latent)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s must not be requested for %s, whose heads share projections",
                         mha_importance_score_key(own->by), info->family);
    if (rule->weights) return MHA_OK;
    if (!data) return mha__fail(err, MHA_ERR_ARG, "data must not be NULL for %s", mha_importance_score_key(own->by));
    MHA__TRY(mha__head_data_matches(model, data, err));
    if (info->encoder_decoder &&
        (own->by == MHA_IMPORTANCE_CONFIDENCE || own->by == MHA_IMPORTANCE_CONFIDENCE_NOSPECIAL))
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s must not be requested for source/target pairs",
                         mha_importance_score_key(own->by));
    if (own->loss == MHA_LOSS_AUTO) own->loss = usual_loss(info, own);
    if (own->loss_scale == 0) own->loss_scale = SCALE;
    if (own->probes == 0) own->probes = PROBES;
    return rule->loss ? check_loss(info, data, own, err) : MHA_OK;
}

mha_status mha__importance_pairs_read(const mha_model *model, const mha_head_data *data,
                                      const mha_importance_options *given, mha_importance_options *own, mha_error *err)
{
    mha_importance_options asked;
    MHA__TRY(mha__options_read(&asked, sizeof asked, given, "mha_importance_options", err));
    const bool mean = asked.by == MHA_IMPORTANCE_LOO_MEAN || asked.by == MHA_IMPORTANCE_LOO_MEAN_LOSS;
    if (asked.loss == MHA_LOSS_AUTO) asked.loss = usual_loss(mha_model_describe(model), &asked);
    if (asked.loss == MHA_LOSS_NONE)
        asked.by = mean ? MHA_IMPORTANCE_LOO_MEAN : MHA_IMPORTANCE_LOO;
    else
        asked.by = mean ? MHA_IMPORTANCE_LOO_MEAN_LOSS : MHA_IMPORTANCE_LOO_LOSS;
    if (model->encoder)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "mha_importance_pairs: model must not be an encoder-decoder (got %s)",
                         mha_model_describe(model)->family);
    return mha__importance_options_read(model, data, &asked, own, err);
}
