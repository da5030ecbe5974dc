/* prompt_pair_case.c - implements prompt_pair_case.h. */
#include "support/circuits/prompt_pair_case.h"

#include "support/check.h"
#include <stdlib.h>

const int32_t prompt_pair_clean[T] = {9, 14, 21, 17, 30, 25, 19},
              prompt_pair_corrupted[T] = {9, 14, 33, 17, 30, 25, 19};

mha_prompt_pair *prompt_pair_of(const mha_model *model, const int32_t *clean, const int32_t *corrupted, int64_t at)
{
    mha_prompt_pair *pair;
    mha_error err = {0};
    const mha_prompt_pair_options o = {.size = sizeof o,
                                       .clean = clean,
                                       .corrupted = corrupted,
                                       .length = T,
                                       .answer = 11,
                                       .wrong = 12,
                                       .position = &at};
    if (mha_prompt_pair_create(model, &o, &pair, &err) != MHA_OK) fail_msg("%s", err.message);
    return pair;
}

double *prompt_pair_room(int64_t count)
{
    double *room = calloc((size_t)count, sizeof *room);
    assert_non_null(room);
    return room;
}
