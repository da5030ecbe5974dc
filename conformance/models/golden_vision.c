/* golden_vision.c - compares one forward pass of a model of images, or of both towers of CLIP, with its golden results:
 * hidden states and maps of one image and one text, and the outputs of the batch. */
#include "conformance/models/golden_model.h"
#include "mha/vision.h"
#include <string.h>

static const double HIDDEN_LIMIT = 1e-4, MAP_LIMIT = 2e-5; /* tolerances of tensors without an entry in "atol" */

/* One tower, and the recorded sequence of its batch: hidden states, maps and the states after the last layer. */
typedef struct tower {
    const mha_model *model;
    const mha_model_info *info;
    const char *hidden, *maps, *last, *pooled; /* names of tensors; those that the file lacks are not compared */
    mha_model_input input;
    int64_t recorded; /* sequence whose states are recorded */
    int64_t length;   /* its tokens without padding */
    const double *want_hidden, *want_maps;
    int64_t hidden_seen, maps_seen;
    float *out_last, *out_pooled, *out_embedding, *out_logits;
} tower;

typedef struct vision_case {
    const verify_entry *entry;
    const mha_file *file;
    verify_case *outcome;
    verify_memory memory;
    tower *at; /* the tower that runs */
} vision_case;

/* ---- inputs ---- */

const float *verify_pixels(verify_memory *memory, const verify_entry *e, const mha_file *file, const char *name,
                           const mha_model *vision, int64_t *batch)
{
    const mha_model_info *m = mha_model_describe(vision);
    int64_t shape[4] = {-1, m->image_channels, m->image_height, m->image_width};
    const mha_tensor *found = mha_file_find(file, name);
    const bool one = found && found->rank == 3;
    const mha_tensor *tensor = verify_tensor(e, file, name, one ? 3 : 4, one ? shape + 1 : shape);
    const double *wide = verify_reals(memory, e, tensor);
    float *pixels = wide ? verify_alloc(memory, tensor->elements, sizeof *pixels, e) : NULL;
    *batch = one ? 1 : shape[0];
    for (int64_t n = 0; pixels && n < tensor->elements; n++)
        pixels[n] = (float)wide[n];
    return pixels;
}

mha_model_input verify_texts(verify_memory *memory, const verify_entry *e, const mha_file *file, const char *ids,
                             const char *mask)
{
    mha_model_input input = {.size = sizeof input};
    int64_t batch = 0, length = 0;
    input.ids = verify_ids_of(memory, e, file, ids, &input.batch, &input.length);
    const int32_t *ones = verify_ids_of(memory, e, file, mask, &batch, &length);
    if (batch != input.batch || length != input.length)
        verify_fault(e, "tensor \"%s\" must have the shape of \"%s\"", mask, ids);
    uint8_t *bytes = e->error->status == MHA_OK ? verify_alloc(memory, batch * length, 1, e) : NULL;
    for (int64_t n = 0; bytes && n < batch * length; n++)
        bytes[n] = ones[n] != 0;
    input.mask = bytes;
    return input;
}

/* ---- recorded results ---- */

/* Compares a tensor with `count` elements, if it is recorded. */
static void compare(vision_case *c, const char *name, int rank, int64_t *shape, const float *got)
{
    const mha_tensor *found = mha_file_find(c->file, name);
    const double *want =
        found ? verify_reals(&c->memory, c->entry, verify_tensor(c->entry, c->file, name, rank, shape)) : NULL;
    if (want) verify_compare(c->outcome, name, got, want, found->elements, verify_limit(c->entry, name, HIDDEN_LIMIT));
}

/* Compares the real rows of a recorded sequence. */
static void compare_rows(const vision_case *c, const char *name, int64_t width, const float *got, const double *want)
{
    verify_compare(c->outcome, name, got + c->at->recorded * c->at->input.length * width, want, c->at->length * width,
                   verify_limit(c->entry, name, HIDDEN_LIMIT));
}

static int on_hidden(void *user, int64_t entry, const float *x)
{
    vision_case *c = user;
    tower *t = c->at;
    if (entry < 0 || entry > t->info->layers) return 1;
    t->hidden_seen++;
    compare_rows(c, t->hidden, t->info->hidden, x, t->want_hidden + entry * t->input.length * t->info->hidden);
    return 0;
}

static int on_maps(void *user, int64_t layer, int64_t heads, const float *probs)
{
    vision_case *c = user;
    tower *t = c->at;
    const int64_t L = t->input.length;
    if (layer < 0 || layer >= t->info->layers || heads != t->info->heads) return 1;
    t->maps_seen++;
    for (int64_t h = 0; h < heads; h++)
        verify_compare(c->outcome, t->maps, probs + (t->recorded * heads + h) * L * L,
                       t->want_maps + (layer * heads + h) * L * L, t->length * L,
                       verify_limit(c->entry, t->maps, MAP_LIMIT));
    return 0;
}

static void read_tower(vision_case *c, tower *t)
{
    const int64_t L = t->input.length, B = t->input.batch, E = t->info->hidden;
    int64_t hidden[3] = {t->info->layers + 1, L, E}, maps[4] = {t->info->layers, t->info->heads, L, L};
    t->length = L;
    while (t->input.mask && t->length > 1 && !t->input.mask[t->recorded * L + t->length - 1])
        t->length--;
    t->want_hidden = verify_reals(&c->memory, c->entry, verify_tensor(c->entry, c->file, t->hidden, 3, hidden));
    t->want_maps = verify_reals(&c->memory, c->entry, verify_tensor(c->entry, c->file, t->maps, 4, maps));
    t->out_last = verify_alloc(&c->memory, B * L * E, sizeof(float), c->entry);
    if (mha_file_find(c->file, t->pooled)) t->out_pooled = verify_alloc(&c->memory, B * E, sizeof(float), c->entry);
}

/* Runs a tower, and compares the states of its recorded sequence. */
static bool run_tower(vision_case *c, tower *t)
{
    const int64_t L = t->input.length, E = t->info->hidden;
    mha_error error = {0};
    const mha_model_output output = {.size = sizeof output,
                                     .last_hidden = t->out_last,
                                     .pooled = t->out_pooled,
                                     .logits = t->out_logits,
                                     .embedding = t->out_embedding,
                                     .on_hidden = on_hidden,
                                     .on_attention = on_maps,
                                     .user = c};
    c->at = t;
    if (c->entry->error->status != MHA_OK) return false;
    if (mha_model_forward(t->model, &t->input, &output, &error) != MHA_OK) {
        verify_stopped(c->outcome, &error);
        return false;
    }
    const mha_tensor *last = mha_file_find(c->file, t->last);
    const double *want =
        last ? verify_reals(&c->memory, c->entry, verify_tensor(c->entry, c->file, t->last, 2, (int64_t[]){L, E}))
             : NULL;
    if (want) compare_rows(c, t->last, E, t->out_last, want);
    if (t->out_pooled) compare(c, t->pooled, 1, (int64_t[]){E}, t->out_pooled + t->recorded * E);
    verify_measured(c->outcome, t->hidden, (double)(t->info->layers + 1 - t->hidden_seen), 0);
    verify_measured(c->outcome, t->maps, (double)(t->info->layers - t->maps_seen), 0);
    return true;
}

/* ---- ViT ---- */

static void check_classifier(vision_case *c, const mha_model *model)
{
    tower t = {.model = model,
               .info = mha_model_describe(model),
               .hidden = "pixels/hidden",
               .maps = "pixels/attn",
               .last = "pixels/last_hidden_state",
               .pooled = "pixels/pooler_output"};
    t.input = (mha_model_input){.size = sizeof t.input, .length = t.info->max_positions};
    t.input.pixels = verify_pixels(&c->memory, c->entry, c->file, "pixels/pixel_values", model, &t.input.batch);
    if (c->entry->error->status != MHA_OK) return;
    read_tower(c, &t);
    if (mha_file_find(c->file, "pixels/logits"))
        t.out_logits = verify_alloc(&c->memory, t.input.batch * t.info->classes + 1, sizeof(float), c->entry);
    if (run_tower(c, &t) && t.out_logits) compare(c, "pixels/logits", 1, (int64_t[]){t.info->classes}, t.out_logits);
}

/* ---- CLIP ---- */

/* Compares embeddings and similarities of the batch. */
static void compare_pairs(vision_case *c, const mha_model *model, const tower *text, const tower *image)
{
    const int64_t B = text->input.batch, I = image->input.batch, P = text->info->embedding_width;
    float *logits = verify_alloc(&c->memory, 2 * B * I, sizeof *logits, c->entry), *turned = logits + B * I;
    mha_error error = {0};
    if (!logits) return;
    compare(c, "pixels/text_embeds", 2, (int64_t[]){B, P}, text->out_embedding);
    compare(c, "pixels/image_embeds", 2, (int64_t[]){I, P}, image->out_embedding);
    if (mha_clip_logits(model, image->out_embedding, I, text->out_embedding, B, logits, &error) != MHA_OK) {
        verify_stopped(c->outcome, &error);
        return;
    }
    for (int64_t i = 0; i < I; i++)
        for (int64_t b = 0; b < B; b++)
            turned[b * I + i] = logits[i * B + b];
    compare(c, "pixels/logits_per_image", 2, (int64_t[]){I, B}, logits);
    compare(c, "pixels/logits_per_text", 2, (int64_t[]){B, I}, turned);
}

static void check_clip(vision_case *c, const mha_model *model)
{
    tower text = {.model = model,
                  .info = mha_model_describe(model),
                  .recorded = 1,
                  .hidden = "pixels/text_hidden",
                  .maps = "pixels/text_attn",
                  .last = "pixels/text_last_hidden_state",
                  .pooled = "pixels/text_pooled"};
    tower image = {.model = mha_model_vision(model),
                   .hidden = "pixels/vision_hidden",
                   .maps = "pixels/vision_attn",
                   .last = "pixels/vision_last_hidden_state",
                   .pooled = "pixels/vision_pooled"};
    image.info = mha_model_describe(image.model);
    text.input = verify_texts(&c->memory, c->entry, c->file, "pixels/input_ids", "pixels/attention_mask");
    image.input = (mha_model_input){.size = sizeof image.input, .length = image.info->max_positions};
    image.input.pixels =
        verify_pixels(&c->memory, c->entry, c->file, "pixels/pixel_values", image.model, &image.input.batch);
    if (c->entry->error->status == MHA_OK && text.input.batch < 2)
        verify_fault(c->entry, "tensor \"pixels/input_ids\" must have at least 2 texts");
    if (c->entry->error->status != MHA_OK) return;
    read_tower(c, &text);
    read_tower(c, &image);
    const int64_t P = text.info->embedding_width;
    text.out_embedding = verify_alloc(&c->memory, text.input.batch * P, sizeof(float), c->entry);
    image.out_embedding = verify_alloc(&c->memory, image.input.batch * P, sizeof(float), c->entry);
    if (run_tower(c, &text) && run_tower(c, &image)) compare_pairs(c, model, &text, &image);
}

void verify_vision(const verify_entry *e, const mha_file *file, const mha_model *model, verify_case *outcome)
{
    vision_case c = {.entry = e, .file = file, .outcome = outcome};
    if (!mha_model_vision(model))
        verify_fault(e, "results of images require a model of images (got %s)", mha_model_describe(model)->family);
    else if (mha_model_vision(model) == model)
        check_classifier(&c, model);
    else
        check_clip(&c, model);
    verify_release(&c.memory);
}
