/* config_features.c - checks that the features that a checkpoint was trained on are those of mha/audio.h. */
#include "base/error.h"
#include "io/files/input_file.h"
#include "mha/audio.h"
#include "model/config/config_layers.h"
#include <float.h>

#define FILE_NAME "preprocessor_config.json"

/* Checks the keys that would change the features; a missing key has the value of Whisper. */
static mha_status check_keys(const mha__json_obj *o, const mha__config *c, mha_error *err)
{
    const struct {
        const char *key;
        int64_t value;
    } keys[] = {{"feature_size", c->mel_bins},
                {"sampling_rate", MHA_AUDIO_RATE},
                {"hop_length", MHA_AUDIO_HOP},
                {"n_fft", 400}};
    for (size_t n = 0; n < sizeof keys / sizeof *keys; n++) {
        int64_t got = keys[n].value;
        MHA__TRY(mha__json_int(o, keys[n].key, MHA__OPTIONAL, 0, INT32_MAX, &got, err));
        if (got != keys[n].value)
            return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: %s must be %lld (got %lld)", o->file, keys[n].key,
                             (long long)keys[n].value, (long long)got);
    }
    return MHA_OK;
}

/* Checks that the extractor neither adds noise nor pads with values other than zeros. */
static mha_status check_zeros(const mha__json_obj *o, mha_error *err)
{
    static const char *const keys[] = {"dither", "padding_value"};
    for (size_t n = 0; n < sizeof keys / sizeof *keys; n++) {
        double got = 0;
        MHA__TRY(mha__json_number(o, keys[n], MHA__OPTIONAL, -DBL_MAX, DBL_MAX, &got, err));
        if (got != 0) return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: %s must be 0 (got %g)", o->file, keys[n], got);
    }
    return MHA_OK;
}

static mha_status read_file(mha_ctx *ctx, const char *folder, const mha__config *c, mha_error *err)
{
    const mha__json *json = NULL;
    MHA__TRY(mha__json_read(ctx, folder, FILE_NAME, MHA__CONFIG_BYTES, &json, err));
    const mha__json_obj o = {.json = json, .file = FILE_NAME};
    mha_status status = check_keys(&o, c, err);
    if (status == MHA_OK) status = check_zeros(&o, err);
    mha__json_free(json);
    return status;
}

mha_status mha__config_features(mha_ctx *ctx, const char *folder, const mha__config *c, mha_error *err)
{
    if (!c->mel_bins || !mha__source_exists(folder, FILE_NAME)) return MHA_OK;
    return mha__in_folder(read_file(ctx, folder, c, err), folder, FILE_NAME, err);
}
