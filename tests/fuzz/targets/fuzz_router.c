/* fuzz_router.c - any bytes as the file of a router (route.h). What is accepted routes the model, which runs.
 */
#include "fuzz.h"
#include "mutate.h"

#include "mha/route.h"
#include <math.h>
#include <stdlib.h>

FUZZ_MUTATES_HEADER

enum { HIDDEN = 8, LENGTH = 3 };

#define MODEL                                                                                                        \
    "{\"model_type\":\"bert\",\"vocab_size\":8,\"hidden_size\":8,\"num_hidden_layers\":2,\"num_attention_heads\":4," \
    "\"intermediate_size\":8,\"max_position_embeddings\":8}"

static void run(mha_model *model, const mha_router *router)
{
    static const int32_t ids[LENGTH] = {1, 2, 3};
    float hidden[LENGTH * HIDDEN];
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = LENGTH, .ids = ids};
    const mha_model_output output = {.size = sizeof output, .last_hidden = hidden};
    mha_error err = {0};
    fuzz_check(mha_model_route(model, router, 2, &err) == MHA_OK, "a router of the model's shape routes it");
    fuzz_check(mha_model_forward(model, &input, &output, &err) == MHA_OK, "what is routed runs");
    for (int i = 0; i < LENGTH * HIDDEN; i++)
        fuzz_check(isfinite(hidden[i]), "no score spreads into a state");
    mha_model_route(model, NULL, 0, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static mha_model *model;
    const mha_router_options options = {.size = sizeof options, .no_digest = 1};
    mha_router *router = NULL;
    mha_error err = {0};
    if (!model) model = fuzz_model(MODEL);
    const char *path = fuzz_file(bytes, n);
    const mha_status status = mha_router_open(model, path, &options, &router, &err);
    fuzz_check((status == MHA_OK) == (router != NULL), "a router comes with success, and only then");
    fuzz_refusal(status, &err, path);
    if (router) run(model, router);
    mha_router_free(router);
    return 0;
}
