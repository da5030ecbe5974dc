/* gguf_config_write.c - writes single values of config.json, and copies them from the keys of a GGUF file. */
#include "io/json/json_number.h"
#include "model/gguf/gguf_config.h"
#include <stdio.h>

typedef mha__gguf_config_writer config;

enum { KEY = MHA__GGUF_CONFIG_KEY };

const char *mha__gguf_config_key(const mha__gguf_arch *arch, const char *suffix, char key[KEY])
{
    snprintf(key, KEY, "%s.%s", arch->name, suffix);
    return key;
}

void mha__gguf_config_int(config *c, const char *key, int64_t value)
{
    mha__json_key(&c->w, key);
    mha__json_put_int(&c->w, value);
}

void mha__gguf_config_real(config *c, const char *key, double value)
{
    mha__json_key(&c->w, key);
    mha__json_put_real(&c->w, value);
}

void mha__gguf_config_text(config *c, const char *key, const char *value)
{
    mha__json_key(&c->w, key);
    mha__json_put_text(&c->w, value);
}

double mha__gguf_config_shortest(double value)
{
    char text[MHA__JSON_REAL_BYTES];
    for (int digits = 1; digits < 9; digits++) {
        mha__json_real_text(value, digits, text);
        const mha__json_decimal d = mha__json_decimal_of(text);
        const double back = mha__json_real_of(text, &d);
        if ((float)back == (float)value) return back;
    }
    return value;
}

mha_status mha__gguf_config_copy(config *c, const char *suffix, const char *key, bool *found)
{
    char name[KEY];
    double value = 0;
    const bool has = mha__gguf_find(c->file, mha__gguf_config_key(c->arch, suffix, name)) != NULL;
    if (found) *found = has;
    MHA__TRY(mha__gguf_real(c->file, name, &value, c->err));
    if (has) mha__gguf_config_real(c, key, mha__gguf_config_shortest(value));
    return MHA_OK;
}
