/* importance_keys.c - the names of scores and losses in options and files, and their descriptions. */
#include "heads/importance/importance.h"

typedef struct label {
    const char *key, *help;
} label;

static const label scores[MHA_IMPORTANCE_SCORES] = {
#define MHA__X(name, key, text) [name] = {key, text},
    MHA_IMPORTANCE_SCORE_MAP(MHA__X)
#undef MHA__X
};

const char *mha_importance_score_key(mha_importance_score score)
{
    return (unsigned)score < MHA_IMPORTANCE_SCORES ? scores[score].key : NULL;
}

const char *mha_importance_score_help(mha_importance_score score)
{
    return (unsigned)score < MHA_IMPORTANCE_SCORES ? scores[score].help : NULL;
}

int mha_importance_score_needs_loss(mha_importance_score score)
{
    return (unsigned)score < MHA_IMPORTANCE_SCORES && mha__importance_rules[score].loss;
}

const char *mha_head_loss_key(mha_head_loss loss)
{
    static const char *const keys[] = {"auto", "none", "lm", "mlm", "pairs", "classes"};
    return (unsigned)loss <= MHA_LOSS_CLASSES ? keys[loss] : NULL;
}
