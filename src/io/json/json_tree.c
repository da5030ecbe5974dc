/* json_tree.c - a JSON text as a tree (json.h).
 *
 * Reads the text twice: the first pass validates and counts, the second pass fills tables of exactly that size. A
 * container is followed by its content. The next value is `span` nodes later, where `span` is the node count of a
 * value.
 *
 * One hash table with open addressing holds the keys of all objects; the object is part of the hash key. Keys in a
 * hostile file may be crafted to collide. Parsing therefore fails if storing the keys takes more than 16 probes per key
 * on average; random keys never need that many. */
#include "base/ctx.h"
#include "base/size.h"
#include "io/json/json.h"
#include <stddef.h>
#include <string.h>

typedef struct tree tree;

struct mha__json {
    uint32_t kind : 4, size : 28; /* size: bytes of a string or key; number of items or members */
    uint32_t span;                /* nodes of the value, including itself; for a key: node number of its object */
    union {
        int64_t integer;
        double real;
        const char *text;
        const tree *tree; /* the tree that contains this value */
    } is;
};

_Static_assert(sizeof(mha__json) == 16, "the limits in input_limits.h assume 16 bytes per value and key");
_Static_assert(MHA__STRING_BYTES < (size_t)1 << 28 && MHA__JSON_NODES < (size_t)1 << 28,
               "string lengths and node counts must fit into `size`");

struct tree {
    mha_ctx *ctx;
    char *text;      /* the text of the file, which contains the strings of the tree */
    uint32_t *slots; /* [slot_count] node numbers of keys; 0 = free, since node 0 is the root */
    size_t slot_count, keys, probes;
    size_t bytes; /* [bytes] memory of the tree, including the text */
    mha__json nodes[];
};

/* ---- keys ---- */

/* Hashes a key with 64-bit FNV-1a, seeded with the object; the final multiplication distributes the hashes of short
 * keys over the upper bits. */
static uint32_t hash_key(uint32_t object, const char *key, size_t n)
{
    uint64_t hash = 0xCBF29CE484222325u ^ object * 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (unsigned char)key[i]) * 0x00000100000001B3u;
    return (uint32_t)((hash ^ hash >> 32) * 0x9E3779B97F4A7C15u >> 32);
}

/* Returns the slot of an object's key, or the free slot where the key would be stored. A free slot always exists. */
static size_t find_slot(const tree *t, uint32_t object, const char *key, size_t n, size_t *probes)
{
    size_t at = (size_t)((uint64_t)hash_key(object, key, n) * t->slot_count >> 32);
    for (;; at = at + 1 < t->slot_count ? at + 1 : 0) {
        const mha__json *other = &t->nodes[t->slots[at]];
        if (t->slots[at] == 0) return at;
        if (other->span == object && other->size == n && memcmp(other->is.text, key, n) == 0) return at;
        ++*probes;
    }
}

static mha_status add_key(tree *t, uint32_t number, const mha__json_scan *s, size_t place)
{
    const mha__json *key = &t->nodes[number];
    const size_t at = find_slot(t, key->span, key->is.text, key->size, &t->probes);
    if (t->slots[at])
        return mha__json_scan_fail(s, place, "duplicate object key \"%s\"",
                                   mha__quote(&(mha__quoted){0}, key->is.text, key->size));
    t->slots[at] = number;
    if (t->probes <= 16 * ++t->keys + 1024) return MHA_OK;
    return mha__json_scan_fail(s, place, "too many keys with the same hash, such as \"%s\"",
                               mha__quote(&(mha__quoted){0}, key->is.text, key->size));
}

/* ---- parsing ---- */

/* Validates the whole text and counts its nodes. */
static mha_status count_nodes(mha__json_scan s, size_t *nodes, size_t *keys)
{
    mha__json_token t;
    *nodes = *keys = 0;
    do {
        MHA__TRY(mha__json_next(&s, &t));
        *keys += t.kind == MHA__JSON_KEY;
        *nodes += t.kind < MHA__JSON_END;
        if (*nodes > MHA__JSON_NODES)
            return mha__json_scan_fail(&s, t.at, "file must contain at most %zu values and keys", MHA__JSON_NODES);
    } while (t.kind != MHA__JSON_DONE);
    return MHA_OK;
}

/* Allocates the tree for a text of n bytes. */
static mha_status make_tree(mha_ctx *ctx, size_t n, size_t nodes, size_t keys, tree **out, mha_error *err)
{
    /* These sizes cannot overflow, because both counts are limited. */
    const size_t bytes = sizeof(tree) + nodes * sizeof(mha__json), slots = keys + keys / 2 + 1;
    tree *t = *out = mha__alloc(ctx, bytes);
    if (!t) return mha__no_memory(err, bytes, "the tree of a JSON file");
    *t = (tree){.ctx = ctx, .slot_count = slots, .slots = mha__calloc(ctx, slots, sizeof *t->slots)};
    t->bytes = n + bytes + slots * sizeof *t->slots;
    return t->slots ? MHA_OK : mha__no_memory(err, slots * sizeof *t->slots, "the keys of a JSON file");
}

/* Decodes a string in place. The final NUL overwrites the closing quote or an earlier byte. */
static const char *keep_text(const mha__json_token *token, const mha__json_scan *s, char *text)
{
    char *to = text + (token->text - s->text);
    mha__json_decode(token, to, token->bytes);
    to[token->bytes] = '\0';
    return to;
}

static mha__json node_of(const mha__json_token *token, const mha__json_scan *s, char *text, const tree *t)
{
    mha__json node = {.kind = token->kind, .span = 1};
    switch (token->kind) {
    case MHA__JSON_INTEGER:
        node.is.integer = token->integer;
        break;
    case MHA__JSON_REAL:
        node.is.real = token->real;
        break;
    case MHA__JSON_STRING:
    case MHA__JSON_KEY:
        node.size = (uint32_t)token->bytes & 0xFFFFFFF;
        node.is.text = keep_text(token, s, text);
        break;
    default:
        node.is.tree = t;
    }
    return node;
}

/* Stores the values of the text in the tree. `text` is the text that `s` scans, and is modified. */
static mha_status fill_tree(tree *t, mha__json_scan *s, char *text)
{
    uint32_t open[MHA__JSON_DEPTH], count = 0;
    int depth = 0;
    for (mha__json_token token;;) {
        MHA__TRY(mha__json_next(s, &token));
        if (token.kind == MHA__JSON_DONE) return MHA_OK;
        if (token.kind == MHA__JSON_END) {
            depth--;
            t->nodes[open[depth]].span = count - open[depth];
            continue;
        }
        mha__json *node = &t->nodes[count];
        *node = node_of(&token, s, text, t);
        if (depth && (token.kind == MHA__JSON_KEY || t->nodes[open[depth - 1]].kind == MHA__JSON_ARRAY))
            t->nodes[open[depth - 1]].size++;
        if (token.kind == MHA__JSON_KEY) {
            node->span = open[depth - 1];
            MHA__TRY(add_key(t, count, s, token.at));
        }
        if (token.kind == MHA__JSON_ARRAY || token.kind == MHA__JSON_OBJECT) open[depth++] = count;
        count++;
    }
}

/* Parses the text; the tree takes ownership of it. */
static mha_status parse_own(mha_ctx *ctx, const char *file, char *text, size_t n, unsigned flags,
                            const mha__json **root, mha_error *err)
{
    mha__json_scan s;
    size_t nodes = 0, keys = 0;
    tree *t = NULL;
    mha_status status = mha__json_scan_begin(&s, file, text, n, flags, err);
    if (status == MHA_OK) status = count_nodes(s, &nodes, &keys);
    if (status == MHA_OK) status = make_tree(ctx, n, nodes, keys, &t, err);
    if (status == MHA_OK) status = fill_tree(t, &s, text + (s.text - text));
    if (t) t->text = text;
    if (status == MHA_OK)
        *root = t->nodes;
    else if (t)
        mha__json_free(t->nodes);
    else
        mha__free(ctx, text);
    return status;
}

mha_status mha__json_parse(mha_ctx *ctx, const char *file, const char *text, size_t n, unsigned flags,
                           const mha__json **root, mha_error *err)
{
    size_t bytes;
    *root = NULL;
    MHA__TRY(mha__ctx_find(&ctx, err));
    char *copy = mha__add(n, 1, &bytes) ? mha__alloc(ctx, bytes) : NULL;
    if (!copy) return mha__no_memory(err, n, "the text of a JSON file");
    memcpy(copy, text, n);
    copy[n] = '\0';
    return parse_own(ctx, file, copy, n, flags, root, err);
}

mha_status mha__json_read(mha_ctx *ctx, const char *folder, const char *name, size_t limit, const mha__json **root,
                          mha_error *err)
{
    char *text = NULL;
    size_t n = 0;
    *root = NULL;
    MHA__TRY(mha__ctx_find(&ctx, err));
    MHA__TRY(mha__read_whole(ctx, folder, name, limit, &text, &n, err));
    return parse_own(ctx, name, text, n, MHA__JSON_BOM, root, err);
}

static tree *tree_of(const mha__json *root)
{
    return (tree *)((char *)root - offsetof(tree, nodes));
}

size_t mha__json_memory(const mha__json *root)
{
    return tree_of(root)->bytes;
}

void mha__json_free(const mha__json *root)
{
    if (!root) return;
    tree *t = tree_of(root);
    mha_ctx *ctx = t->ctx;
    mha__free(ctx, t->text);
    mha__free(ctx, t->slots);
    mha__free(ctx, t);
}

/* ---- values ---- */

mha__json_kind mha__json_kind_of(const mha__json *value)
{
    return value ? (mha__json_kind)value->kind : MHA__JSON_ABSENT;
}

bool mha__json_is_bool(const mha__json *value)
{
    return mha__json_is(value, MHA__JSON_TRUE) || mha__json_is(value, MHA__JSON_FALSE);
}

bool mha__json_is_number(const mha__json *value)
{
    return mha__json_is(value, MHA__JSON_INTEGER) || mha__json_is(value, MHA__JSON_REAL);
}

static bool is_container(const mha__json *value)
{
    return mha__json_is(value, MHA__JSON_ARRAY) || mha__json_is(value, MHA__JSON_OBJECT);
}

size_t mha__json_size(const mha__json *value)
{
    return is_container(value) ? value->size : 0;
}

static const mha__json *find(const mha__json *object, const char *key, size_t n)
{
    size_t probes = 0;
    if (!mha__json_is(object, MHA__JSON_OBJECT)) return NULL;
    const tree *t = object->is.tree;
    const uint32_t number = t->slots[find_slot(t, (uint32_t)(object - t->nodes), key, n, &probes)];
    return number ? &t->nodes[number + 1] : NULL;
}

const mha__json *mha__json_get(const mha__json *object, const char *key)
{
    return find(object, key, strlen(key));
}

const mha__json *mha__json_item(const mha__json *array, size_t index)
{
    if (!mha__json_is(array, MHA__JSON_ARRAY) || index >= array->size) return NULL;
    const mha__json *item = array + 1;
    if (array->span == 1u + array->size) return item + index; /* the array contains no containers */
    for (; index > 0; index--)
        item += item->span;
    return item;
}

int64_t mha__json_as_int(const mha__json *value)
{
    return mha__json_is(value, MHA__JSON_INTEGER) ? value->is.integer : 0;
}

double mha__json_as_number(const mha__json *value)
{
    return mha__json_is(value, MHA__JSON_REAL) ? value->is.real : (double)mha__json_as_int(value);
}

const char *mha__json_as_text(const mha__json *value)
{
    return mha__json_is(value, MHA__JSON_STRING) || mha__json_is(value, MHA__JSON_KEY) ? value->is.text : NULL;
}

size_t mha__json_bytes(const mha__json *value)
{
    return mha__json_as_text(value) ? value->size : 0;
}

bool mha__json_each(const mha__json *container, mha__json_step *step)
{
    const bool object = mha__json_is(container, MHA__JSON_OBJECT);
    const size_t index = step->value ? step->index + 1 : 0;
    if (index >= mha__json_size(container)) return false;
    const mha__json *at = step->value ? step->value + step->value->span : container + 1;
    *step = (mha__json_step){.key = object ? at : NULL, .value = object ? at + 1 : at, .index = index};
    return true;
}

static bool equal_members(const mha__json *a, const mha__json *b)
{
    mha__json_step other = {0};
    for (mha__json_step i = {0}; mha__json_each(a, &i) && mha__json_each(b, &other);)
        if (!mha__json_equal(i.value, i.key ? find(b, i.key->is.text, i.key->size) : other.value)) return false;
    return true;
}

bool mha__json_has_text(const mha__json *object, const char *key, const char *text)
{
    const char *own = mha__json_as_text(mha__json_get(object, key));
    return own && strcmp(own, text) == 0;
}

bool mha__json_equal(const mha__json *a, const mha__json *b)
{
    if (!a || !b || a->kind != b->kind) return a == b;
    if (mha__json_is(a, MHA__JSON_INTEGER)) return a->is.integer == b->is.integer;
    if (mha__json_is(a, MHA__JSON_REAL)) return a->is.real == b->is.real;
    if (a->size != b->size) return false;
    return is_container(a) ? equal_members(a, b) : memcmp(a->is.text, b->is.text, a->size) == 0;
}
