/* config_vision.c - reads what only models of images and CLIP have: the object with the keys of a tower, and the number
 * of patches. */
#include "base/error.h"
#include "model/config/config_layers.h"
#include "model/config/family.h"

mha_status mha__config_tower(const mha__json_obj *root, const mha__config *c, mha__json_obj *own, mha_error *err)
{
    const mha__family *f = c->family;
    *own = *root;
    if (!f->tower) return MHA_OK;
    const bool dict = f->tower_dict && mha__json_has(root, f->tower_dict);
    return mha__json_object(root, dict ? f->tower_dict : f->tower, MHA__OPTIONAL, own, err);
}

mha_status mha__config_vision(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    const int64_t size[] = {c->image_height, c->image_width}, patch[] = {c->patch_height, c->patch_width};
    static const char *const names[] = {"height", "width"};
    if (!c->channels) return MHA_OK;
    for (int n = 0; n < 2; n++)
        if (patch[n] > size[n])
            return mha__fail(err, MHA_ERR_FORMAT,
                             "%s: %s of patch_size must be at most that of image_size = %lld (got %lld)", root->file,
                             names[n], (long long)size[n], (long long)patch[n]);
    if (c->pooled && c->pooled != c->hidden)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: pooler_output_size must be hidden_size = %lld (got %lld)",
                         root->file, (long long)c->hidden, (long long)c->pooled);
    c->class_tokens = 1;
    c->max_positions = 1 + size[0] / patch[0] * (size[1] / patch[1]);
    return MHA_OK;
}
