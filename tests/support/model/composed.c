/* composed.c - implements composed.h. */
#include "support/model/composed.h"

#include "support/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const composed composed_cases[COMPOSED_CASES] = {
    {"\"mha.feed_forward\":true", {{0}}},
    {"\"mha.feed_forward\":false", {{.alone = true}, {.alone = true}, {.alone = true}}},
    {"\"mha.feed_forward\":[false,true,false]", {{.alone = true}, {.alone = false}, {.alone = true}}},
    {"\"mha.feed_forward\":[true,false,true],\"mha.heads\":[[0,1],[0,1,2,3],[2]],\"mha.kv_heads\":{\"keys\":[1,2,1],"
     "\"values\":[2,4,1]}",
     {{.heads = 2, .k_heads = 1, .v_heads = 2},
      {.k_heads = 2, .v_heads = 4, .alone = true},
      {.heads = 1, .k_heads = 1, .v_heads = 1}}},
    {"\"mha.attention\":{\"window\":3}", {{.window = 3}, {.window = 3}, {.window = 3}}},
    {"\"mha.attention\":[{\"softcap\":0.7,\"scale\":1.5},null,{\"window\":null,\"alibi\":true}]",
     {{.softcap = 0.7, .scale = 1.5}, {0}, {.alibi = true}}},
    {"\"mha.attention\":[{\"rotary\":false,\"qk_norm\":true},{\"rotary\":true},{\"qk_norm\":true,\"rotary\":true}]",
     {{.turning = TURN_NOT, .normed = true}, {.turning = TURN}, {.turning = TURN, .normed = true}}},
    {"\"mha.attention\":[{\"alibi\":true,\"window\":5,\"rotary\":false},{\"alibi\":true,\"qk_norm\":true,\"scale\":2},{"
     "}],"
     "\"mha.feed_forward\":[false,true,false],\"mha.heads\":[[3,1],[0,1,2,3],[2]],\"mha.kv_heads\":{\"keys\":[1,4,1],"
     "\"values\":1}",
     {{.heads = 2,
       .k_heads = 1,
       .v_heads = 1,
       .number = {3, 1},
       .alone = true,
       .window = 5,
       .turning = TURN_NOT,
       .alibi = true},
      {.v_heads = 1, .scale = 2, .normed = true, .alibi = true},
      {.heads = 1, .k_heads = 1, .v_heads = 1, .alone = true}}},
};

const char *composed_config(const composed *c, bool gpt2)
{
    static char text[2048];
    snprintf(text, sizeof text, "{\"model_type\":\"%s\"," COMPOSED_SIZES "%s}", gpt2 ? "gpt2" : "llama", c->keys);
    return text;
}

mha_trainer *composed_trainer(const mha_model *model)
{
    const mha_train_options o = {.size = sizeof o, .rate = 1e-2};
    mha_trainer *trainer = NULL;
    mha_error err = {0};
    if (mha_trainer_create(model, &o, &trainer, &err) != MHA_OK) fail_msg("%s", err.message);
    return trainer;
}

void composed_texts(int32_t *ids)
{
    for (int n = 0; n < B * L; n++)
        ids[n] = (7 + 31 * n + n * n) % V;
}

float *composed_logits(const mha_model *model, const float *gates)
{
    int32_t ids[B * L];
    float *logits = malloc(sizeof(float[B * L * V]));
    const mha_model_input in = {.size = sizeof in, .batch = B, .length = L, .ids = ids, .gates = gates};
    const mha_model_output out = {.size = sizeof out, .logits = logits};
    mha_error err = {0};
    composed_texts(ids);
    if (mha_model_forward(model, &in, &out, &err) != MHA_OK) fail_msg("%s", err.message);
    return logits;
}

void composed_same(const float *a, const float *b, int64_t count, const char *what)
{
    if (memcmp(a, b, (size_t)count * sizeof *a) != 0) fail_msg("%s: both results must be bitwise identical", what);
}
