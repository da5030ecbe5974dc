/* info_attention.c - see info_attention.h. */
#include "info_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "wrap.h"

/* By the keys of "mha.attention". */
static const char *const choices[] = {[MHA_CHOICE_NONE] = NULL,
                                      [MHA_CHOICE_EXPERTS] = "moe_heads",
                                      [MHA_CHOICE_HEADS] = "head_pruning",
                                      [MHA_CHOICE_OPTIONS] = "adaptive_heads"};

json_t *info_attention_json(const mha_model_info *info)
{
    json_t *array = json_array();
    for (int64_t l = 0; l < info->layers; l++) {
        const mha_model_attention *a = &info->attention_per_layer[l];
        json_array_append_new(array, json_pack("{s:o, s:b, s:b, s:b, s:f, s:o, s:s?, s:I}", "window",
                                               a->window ? json_integer(a->window) : json_null(), "rotary", a->rotary,
                                               "qk_norm", a->qk_norm, "alibi", a->alibi, "scale", a->scale, "softcap",
                                               a->softcap > 0 ? json_real(a->softcap) : json_null(), "choice",
                                               choices[a->choice], "heads_per_text", (json_int_t)a->kept_heads));
    }
    return array;
}

static bool are_alike(const mha_model_attention *a, const mha_model_attention *b)
{
    return a->window == b->window && a->rotary == b->rotary && a->qk_norm == b->qk_norm && a->alibi == b->alibi &&
           a->scale == b->scale && a->softcap == b->softcap && a->choice == b->choice &&
           (!a->choice || (a->selection == b->selection && a->kept_heads == b->kept_heads));
}

/* "rotary, window 64"; "plain" is scores over the root of head_dim, and no more. */
static void describe(FILE *out, const mha_model_info *info, const mha_model_attention *a)
{
    const bool scaled = fabs(a->scale * sqrt((double)info->head_dim) - 1) > 1e-6;
    const struct {
        bool is;
        const char *name;
        int digits; /* of the value; 0: it has none */
        double value;
    } parts[] = {{a->rotary, "rotary", 0, 0},
                 {a->qk_norm, "norms of q and k", 0, 0},
                 {a->alibi, "ALiBi", 0, 0},
                 {a->window > 0, "window", 10, (double)a->window},
                 {a->softcap > 0, "softcap", 4, a->softcap},
                 {scaled, "scale", 4, a->scale},
                 {a->choice == MHA_CHOICE_EXPERTS, "experts for each text:", 10, (double)a->kept_heads},
                 {a->choice == MHA_CHOICE_HEADS, "heads for each text:", 10, (double)a->kept_heads},
                 {a->choice == MHA_CHOICE_OPTIONS, "heads for each text: up to", 10, (double)a->kept_heads}};
    bool any = false;
    for (size_t n = 0; n < sizeof parts / sizeof *parts; n++) {
        if (!parts[n].is) continue;
        fprintf(out, "%s%s", any ? ", " : "", parts[n].name);
        if (parts[n].digits) fprintf(out, " %.*g", parts[n].digits, parts[n].value);
        any = true;
    }
    if (!any) fputs("plain", out);
}

/* " in layers 1, 3": those from `first` on that are as it is. Nothing if all of the model are. */
static void list_layers(FILE *out, const mha_model_info *info, int64_t first)
{
    const mha_model_attention *a = info->attention_per_layer;
    int64_t count = 0;
    for (int64_t l = first; l < info->layers; l++)
        count += are_alike(&a[l], &a[first]);
    if (count == info->layers) return;
    fprintf(out, " in layer%s", count > 1 ? "s" : "");
    const char *comma = " ";
    for (int64_t l = first; l < info->layers; l++) {
        if (!are_alike(&a[l], &a[first])) continue;
        fprintf(out, "%s%lld", comma, (long long)l);
        comma = ", ";
    }
}

static bool is_first_of_its_kind(const mha_model_info *info, int64_t layer)
{
    int64_t l = 0;
    while (!are_alike(&info->attention_per_layer[l], &info->attention_per_layer[layer]))
        l++;
    return l == layer;
}

void info_put_attention(const cli_session *s, int indent, const mha_model_info *info)
{
    for (int64_t l = 0; l < info->layers; l++) {
        char *text = NULL;
        size_t bytes;
        FILE *out = is_first_of_its_kind(info, l) ? open_memstream(&text, &bytes) : NULL;
        if (!out) continue;
        describe(out, info, &info->attention_per_layer[l]);
        list_layers(out, info, l);
        if (fclose(out) == 0) {
            if (l > 0) fprintf(s->out, "%*s", indent, "");
            cli_put_prose(s, indent, indent, "%s", text);
        }
        free(text);
    }
}
