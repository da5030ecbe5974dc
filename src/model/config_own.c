/* config_own.c - keys of config.json that are this project's own: which parts a layer has. */
#include "base/error.h"
#include "io/json.h"
#include "model/config_layers.h"

#define FEED "mha.feed_forward"

mha_status mha__config_feed(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    const json_t *given = json_object_get(root->json, FEED), *list = json_is_array(given) ? given : NULL;
    bool every = true;
    if (!list) MHA__TRY(mha__json_bool(root, FEED, MHA__OPTIONAL, &every, err));
    if (list) MHA__TRY(mha__config_count(root, FEED, list, c->layers, "true or false for each layer", err));
    for (int64_t layer = 0; layer < c->layers; layer++) {
        const json_t *item = json_array_get(list, (size_t)layer);
        if (list && !json_is_boolean(item))
            return mha__json_refuse_item(root, FEED, (size_t)layer, "true or false", err);
        c->attention_only[layer] = list ? json_is_false(item) : !every;
    }
    return MHA_OK;
}
