/* head_labels.c - assigns a label to a head according to its pattern scores. The order of the rules is part of the
 * definition of the labels: the most specific rule comes first. */
#include "base/error.h"
#include "heads/measure/head_stats.h"
#include <math.h>

/* ---- thresholds ---- */

static const mha_head_thresholds defaults = {
    .probe = 0.40, .single = 0.40, .local = 0.70, .block = 0.40, .broad = 0.90, .vertical = 0.80, .sink = 0.30};

mha_status mha__head_thresholds_read(const mha_head_thresholds *given, mha_head_thresholds *limits, mha_error *err)
{
    *limits = *given;
    const struct {
        const char *name;
        double *value, standard;
    } all[] = {{"probe", &limits->probe, defaults.probe}, {"single", &limits->single, defaults.single},
               {"local", &limits->local, defaults.local}, {"block", &limits->block, defaults.block},
               {"broad", &limits->broad, defaults.broad}, {"vertical", &limits->vertical, defaults.vertical},
               {"sink", &limits->sink, defaults.sink}};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        if (!(*all[n].value >= 0) || isinf(*all[n].value))
            return mha__fail(err, MHA_ERR_ARG, "mha_head_thresholds: %s must be at least 0 (got %g)", all[n].name,
                             *all[n].value);
        if (*all[n].value == 0) *all[n].value = all[n].standard;
    }
    return MHA_OK;
}

/* ---- rules ---- */

/* The labels of heads that attend to a single target. The target with the largest score determines the label; on ties,
 * the first target. */
static const struct {
    mha_head_metric score;
    mha_head_label label;
} singles[] = {
    {MHA_HEAD_PREV, MHA_LABEL_PREV},   {MHA_HEAD_NEXT, MHA_LABEL_NEXT}, {MHA_HEAD_SELF, MHA_LABEL_SELF},
    {MHA_HEAD_FIRST, MHA_LABEL_FIRST}, {MHA_HEAD_SEP, MHA_LABEL_SEP},   {MHA_HEAD_PUNCT, MHA_LABEL_PUNCT},
};

static bool single_label(const mha__head_stats *s, double limit, mha_head_label *label)
{
    double best = 0;
    for (size_t i = 0; i < sizeof singles / sizeof *singles; i++) {
        double value = mha__head_stats_value(s, singles[i].score);
        if (!(value > best)) continue;
        best = value;
        *label = singles[i].label;
    }
    return best >= limit;
}

/* Applies the remaining rules, each with one metric and one threshold. */
static mha_head_label shape_label(const mha__head_stats *s, const mha_head_thresholds *limits)
{
    const struct {
        mha_head_metric score;
        double limit;
        mha_head_label label;
    } rules[] = {{MHA_HEAD_WINDOW2, limits->local, MHA_LABEL_LOCAL},
                 {MHA_HEAD_BLOCK, limits->block, MHA_LABEL_BLOCK},
                 {MHA_HEAD_BROAD, limits->broad, MHA_LABEL_BROAD},
                 {MHA_HEAD_VERTICAL, limits->vertical, MHA_LABEL_VERTICAL}};
    for (size_t n = 0; n < sizeof rules / sizeof *rules; n++)
        if (mha__head_stats_value(s, rules[n].score) >= rules[n].limit) return rules[n].label;
    return MHA_LABEL_MIXED;
}

mha_head_label mha__head_stats_label(const mha__head_stats *s, const mha_head_thresholds *limits)
{
    mha_head_label label = MHA_LABEL_MIXED;
    const double duplicate = mha__head_stats_value(s, MHA_HEAD_DUP_PROBE);
    if (mha__head_stats_value(s, MHA_HEAD_INDUCTION_PROBE) >= limits->probe) return MHA_LABEL_INDUCTION;
    if (duplicate >= limits->probe && duplicate > mha__head_stats_value(s, MHA_HEAD_SELF)) return MHA_LABEL_DUPLICATE;
    return single_label(s, limits->single, &label) ? label : shape_label(s, limits);
}

/* ---- names of metrics and labels ---- */

#define MHA__KEY(name, key, text) key,
#define MHA__TEXT(name, key, text) text,
static const char *const metric_keys[] = {MHA_HEAD_METRIC_MAP(MHA__KEY)};
static const char *const metric_texts[] = {MHA_HEAD_METRIC_MAP(MHA__TEXT)};
static const char *const label_keys[] = {MHA_HEAD_LABEL_MAP(MHA__KEY)};
static const char *const label_texts[] = {MHA_HEAD_LABEL_MAP(MHA__TEXT)};

const char *mha_head_metric_key(mha_head_metric metric)
{
    return (unsigned)metric < MHA_HEAD_METRICS ? metric_keys[metric] : NULL;
}

const char *mha_head_metric_help(mha_head_metric metric)
{
    return (unsigned)metric < MHA_HEAD_METRICS ? metric_texts[metric] : NULL;
}

const char *mha_head_label_key(mha_head_label label)
{
    return (unsigned)label < MHA_HEAD_LABELS ? label_keys[label] : NULL;
}

const char *mha_head_label_help(mha_head_label label)
{
    return (unsigned)label < MHA_HEAD_LABELS ? label_texts[label] : NULL;
}
