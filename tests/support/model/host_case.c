/* host_case.c - see host_case.h. */
#include "support/model/host_case.h"

#include "support/check.h"

const mha_host_model host_medium = {.size = sizeof host_medium,
                                    .layers = 32,
                                    .hidden = 4096,
                                    .heads = 32,
                                    .kv_heads = 8,
                                    .head_dim = 128,
                                    .layer_weights = 8000000000};

mha_host_network host_network(const char *name)
{
    mha_host_network n;
    assert_int_equal(mha_host_network_find(name, &n, NULL), MHA_OK);
    return n;
}

mha_host_layout host_layout(const mha_host_model *model, const mha_host_options *o, int64_t tp, int64_t cp, int64_t dp)
{
    mha_error e = {0};
    mha_host_layout row;
    if (mha_host_layout_predict(model, o, tp, cp, dp, &row, &e) != MHA_OK) fail_msg("%s", e.message);
    assert_true(row.tp == tp && row.cp == cp && row.dp == dp);
    return row;
}
