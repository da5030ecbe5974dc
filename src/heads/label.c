/* label.c - from scores to a name. The order of the rules is part of the definition: the most specific first. */
#include "heads/stats.h"

static const double PROBE = 0.40, SINGLE = 0.40, LOCAL = 0.70, BROAD = 0.90, VERTICAL = 0.80;

/* The target that gets the most weight; the earlier one when equal. */
static const struct {
    mha_head_metric score;
    mha_head_label label;
} singles[] = {
    {MHA_HEAD_PREV, MHA_LABEL_PREV},   {MHA_HEAD_NEXT, MHA_LABEL_NEXT}, {MHA_HEAD_SELF, MHA_LABEL_SELF},
    {MHA_HEAD_FIRST, MHA_LABEL_FIRST}, {MHA_HEAD_SEP, MHA_LABEL_SEP},   {MHA_HEAD_PUNCT, MHA_LABEL_PUNCT},
};

static bool single_label(const mha__head_stats *s, mha_head_label *label)
{
    double best = 0;
    for (size_t i = 0; i < sizeof singles / sizeof *singles; i++) {
        double value = mha__head_stats_value(s, singles[i].score);
        if (!(value > best)) continue;
        best = value;
        *label = singles[i].label;
    }
    return best >= SINGLE;
}

mha_head_label mha__head_stats_label(const mha__head_stats *s)
{
    mha_head_label label = MHA_LABEL_MIXED;
    double duplicate = mha__head_stats_value(s, MHA_HEAD_DUP_PROBE);
    if (mha__head_stats_value(s, MHA_HEAD_INDUCTION_PROBE) >= PROBE) return MHA_LABEL_INDUCTION;
    if (duplicate >= PROBE && duplicate > mha__head_stats_value(s, MHA_HEAD_SELF)) return MHA_LABEL_DUPLICATE;
    if (single_label(s, &label)) return label;
    if (mha__head_stats_value(s, MHA_HEAD_WINDOW2) >= LOCAL) return MHA_LABEL_LOCAL;
    if (mha__head_stats_value(s, MHA_HEAD_BROAD) >= BROAD) return MHA_LABEL_BROAD;
    if (mha__head_stats_value(s, MHA_HEAD_VERTICAL) >= VERTICAL) return MHA_LABEL_VERTICAL;
    return MHA_LABEL_MIXED;
}

/* ---- names ---- */

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
