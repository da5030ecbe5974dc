/* keep_list.c - lists of kept heads, original head numbers, and the head counts of config.json. */
#include "heads/edit/keep_list.h"

#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "io/json/json.h"
#include <stdio.h>

int64_t mha__group(const mha_model *m, int64_t layer)
{
    const int64_t keys = m->config.layer_k_heads[layer], values = m->config.layer_v_heads[layer];
    return m->config.layer_heads[layer] * mha__common_multiple(keys, values) / (keys * values);
}

/* Writes the numbers of `count` heads in the unpruned model, for example "4, 5". */
static void name_heads(const mha__keep *k, int64_t layer, int64_t first, int64_t count, char *text, size_t room)
{
    size_t used = 0;
    for (int64_t h = first; h < first + count && used < room; h++)
        used += (size_t)snprintf(text + used, room - used, "%s%lld", h > first ? ", " : "",
                                 (long long)mha__keep_number(k, layer, h));
}

static mha_status refuse_part(const mha__keep *k, int64_t layer, int64_t first, int64_t count, mha_error *err)
{
    char heads[128];
    name_heads(k, layer, first, count, heads, sizeof heads);
    return mha__fail(err, MHA_ERR_ARG,
                     "layer %lld: heads %s must be kept or removed together, since they share keys or values",
                     (long long)layer, heads);
}

mha_status mha__keep_check(const mha__keep *k, mha_error *err)
{
    for (int64_t layer = 0; layer < k->model->config.layers; layer++) {
        const int64_t group = k->cross ? 1 : mha__group(k->model, layer);
        if (mha__keep_count(k, layer) == 0)
            return mha__fail(err, MHA_ERR_ARG, "layer %lld must keep at least one head%s", (long long)layer,
                             k->cross ? " of its cross-attention" : "");
        for (int64_t h = 0; h < mha__keep_heads(k, layer); h++)
            if (mha__keep_has(k, layer, h) != mha__keep_has(k, layer, h - h % group))
                return refuse_part(k, layer, h - h % group, group, err);
    }
    return MHA_OK;
}

bool mha__may_lose_heads(const mha_model *m, int64_t layer)
{
    return m->config.attention[layer].choice.of == MHA_CHOICE_NONE;
}

int64_t mha__keep_count(const mha__keep *k, int64_t layer)
{
    int64_t count = 0;
    for (int64_t l = layer < 0 ? 0 : layer; l <= (layer < 0 ? k->model->config.layers - 1 : layer); l++)
        for (int64_t h = 0; h < mha__keep_heads(k, l); h++)
            count += mha__keep_has(k, l, h);
    return count;
}

/* Returns the first kept head of a layer from head `h` on; the layer's head count if there is none. */
static int64_t next_kept(const mha__keep *k, int64_t layer, int64_t h)
{
    while (h < mha__keep_heads(k, layer) && !mha__keep_has(k, layer, h))
        h++;
    return h;
}

bool mha__keep_is_uniform(const mha__keep *k)
{
    for (int64_t l = 1; l < k->model->config.layers; l++) {
        if (mha__keep_count(k, l) != mha__keep_count(k, 0)) return false;
        for (int64_t h = next_kept(k, 0, 0), other = next_kept(k, l, 0); h < mha__keep_heads(k, 0);
             h = next_kept(k, 0, h + 1), other = next_kept(k, l, other + 1))
            if (mha__keep_number(k, 0, h) != mha__keep_number(k, l, other)) return false;
    }
    return true;
}

void mha__keep_write(mha__json_writer *w, const mha__keep *k, bool which)
{
    mha__json_open(w, '[');
    for (int64_t layer = 0; layer < k->model->config.layers; layer++) {
        mha__json_open(w, '[');
        for (int64_t h = 0; h < mha__keep_heads(k, layer); h++)
            if (mha__keep_has(k, layer, h) == which) mha__json_put_int(w, mha__keep_number(k, layer, h));
        mha__json_close(w, ']');
    }
    mha__json_close(w, ']');
}

/* ---- head counts of config.json ---- */

static const char heads_key[] = "num_attention_heads", shared_key[] = "num_key_value_heads", width_key[] = "head_dim",
                  original_key[] = "mha.original_heads";

bool mha__head_count_is_free(const mha__config *c)
{
    if (c->family->latent) return true;
    const bool checked = c->qk_normed || c->rope.kind == MHA_ROPE_LONGROPE;
    return c->family->head_keys && !(c->family->width_checked && checked);
}

/* Returns false also for families without keys for the widths of heads, such as BERT and GPT-2, which compute head_dim
 * as hidden size / heads. Latent attention has keys of its own for them (qk_nope_head_dim). If config.json has a key of
 * this project that changes what layers compute, the number of heads must be unchanged, since the key may depend on
 * it. */
bool mha__heads_are_plain(const mha__config *c, mha__head_count_fn count, const void *user)
{
    const mha__head_count first = count(user, 0);
    for (int64_t l = 0; l < c->layers; l++) {
        const mha__head_count n = count(user, l);
        if (n.heads != first.heads || n.keys != first.keys || n.values != first.keys) return false;
    }
    if (first.heads != c->heads) return mha__head_count_is_free(c) && !c->own_key;
    return c->family->head_keys || c->family->latent;
}

static void write_count(mha__json_writer *w, const char *key, int64_t count)
{
    mha__json_key(w, key);
    mha__json_put_int(w, count);
}

void mha__plain_heads_write(mha__json_writer *w, const mha__config *c, const mha__head_count *n)
{
    const char *key = c->family->heads_key;
    if (!key) write_count(w, shared_key, n->keys);
    if (n->heads == c->heads) return;
    write_count(w, key ? key : heads_key, n->heads);
    if (!key && !c->family->latent) write_count(w, width_key, c->head_dim);
    write_count(w, original_key, c->original_heads);
}

void mha__original_heads_write(mha__json_writer *w, const mha__config *c)
{
    const char *key = c->family->heads_key;
    if (c->original_heads == c->heads) return;
    write_count(w, key ? key : heads_key, c->original_heads);
    if (!key) write_count(w, shared_key, c->original_heads / (c->heads / c->kv_heads));
}

/* ---- public functions ---- */

static bool has_layer(const mha_model *m, int64_t layer)
{
    return m && layer >= 0 && layer < m->config.layers;
}

int64_t mha_head_number(const mha_model *model, int64_t layer, int64_t head)
{
    if (!has_layer(model, layer) || head < 0 || head >= model->heads_per_layer[layer]) return -1;
    return model->head_numbers[layer * model->config.heads + head];
}

int64_t mha_head_place(const mha_model *model, int64_t layer, int64_t number)
{
    for (int64_t h = 0; has_layer(model, layer) && h < model->heads_per_layer[layer]; h++)
        if (model->head_numbers[layer * model->config.heads + h] == number) return h;
    return -1;
}

int64_t mha_cross_head_number(const mha_model *model, int64_t layer, int64_t head)
{
    if (!has_layer(model, layer) || head < 0 || head >= model->config.cross_heads[layer]) return -1;
    return model->cross_numbers[layer * model->config.heads + head];
}

int64_t mha_cross_head_place(const mha_model *model, int64_t layer, int64_t number)
{
    for (int64_t h = 0; has_layer(model, layer) && h < model->config.cross_heads[layer]; h++)
        if (model->cross_numbers[layer * model->config.heads + h] == number) return h;
    return -1;
}
