/* prune_joint.h - the state of a joint selection of heads, and the measurement of its shifts. */
#ifndef MHA_HEADS_EDIT_PRUNE_JOINT_H
#define MHA_HEADS_EDIT_PRUNE_JOINT_H

#include "heads/data/evaluate_texts.h"
#include "heads/edit/prune_model.h"

typedef struct mha__joint {
    const mha_model *m;
    const mha_prune_rule *rule;
    mha__outcome outcome;
    int64_t cells, width; /* elements in the shifts of all texts, and in the shift of one text (E or 1) */
    mha__head_sets sets;
    int64_t rows;   /* number of layers that the rule covers */
    uint8_t *keep;  /* [total] */
    int32_t *order; /* [total] or NULL */
    int32_t gone;   /* number of heads removed so far */
    float *gates;   /* [total] `keep` as gates, 1 or 0 */
    double *means;  /* [sets.cells]; NULL = the output of removed heads is 0 */
    float *fills;   /* [sets.cells] mean outputs of the removed heads, 0 for kept heads */
    float *whole;   /* [cells] output of the source model */
    float *now;     /* [cells] output of the current model */
    float *moved;   /* [groups, cells] the shift caused by removing each group; follows `now` in memory */
    int64_t values; /* size of `now` and `moved` in int64_t, for the measure of a round */
    int64_t round, rounds;
    int64_t *slot; /* [total] index of the group that begins with a head; -1 for other heads */
    int64_t groups;
    float *sum; /* [cells] now - whole, plus the shifts of the groups selected in this round */
} mha__joint;

/* Returns the number of heads in the group that begins with head `first`. */
int64_t mha__joint_group(const mha__joint *j, int64_t first);
/* Returns true if a group begins with head `first` and has not been removed. */
bool mha__joint_keeps(const mha__joint *j, int64_t first);
/* Enables or disables the heads of a group. */
void mha__joint_set(mha__joint *j, int64_t first, bool on);
/* Measures the outputs of the current model and the shifts of its groups: sets `now`, `moved` and `sum`, and in the
 * first round `whole`. */
mha_status mha__joint_measure(mha__joint *j, mha_error *err);

#endif
