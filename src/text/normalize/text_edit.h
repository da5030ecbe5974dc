/* text_edit.h - the edits that make up normalizers and pre-tokenizers; each edit rewrites or splits words.
 *
 * A type of tokenizer.json becomes one or more edits: "Metaspace" replaces spaces with markers, prepends a marker and
 * splits at the markers. The edits of a stage run in sequence, each on all words that the previous edit produced; a
 * normalizer treats the whole text as one word. */
#ifndef MHA_TEXT_NORMALIZE_TEXT_EDIT_H
#define MHA_TEXT_NORMALIZE_TEXT_EDIT_H

#include "text/encode_buffers.h"
#include "text/normalize/precompiled_charsmap.h"
#include "text/pretokenize/split_pattern.h"

enum { MHA__EDITS = 32 }; /* maximum number of edits per stage; published files have at most 7 */

/* How a splitting edit handles the pieces that match its pattern. */
typedef enum mha__cut_how {
    MHA__REMOVED,         /* matches are dropped */
    MHA__ISOLATED,        /* each match is a word */
    MHA__MERGED_PREVIOUS, /* each match joins the previous word */
    MHA__MERGED_NEXT,     /* each match joins the next word */
    MHA__CONTIGUOUS       /* adjacent matches form one word */
} mha__cut_how;

typedef struct mha__edit mha__edit;
struct mha__edit {
    /* Runs an edit on the word `in`, which begins at byte `base` of the text of all words. A rewriting edit appends the
     * word's new text to pass->to; a splitting edit appends its parts to pass->words. */
    mha_status (*run)(const mha__edit *edit, mha__pass *pass, const mha__slice *in, size_t base);
    bool rewrites;
    union {
        struct {
            bool clean_text, chinese, strip_accents, lowercase;
        } bert;
        mha__char_class dropped;
        struct {
            bool compatible, compose;
        } form; /* NFC, NFD, NFKC, NFKD */
        mha__charsmap charsmap;
        struct {
            bool left, right;
        } strip; /* white space */
        struct {
            mha__pattern pattern;
            const char *with;
            size_t n;
        } replace;
        struct {
            const char *text;
            size_t n;
            bool once;  /* true = words that already begin with `text` are unchanged */
            bool first; /* true = only the word at the start of the original text is edited */
        } prefix;
        struct {
            mha__pattern pattern;
            mha__cut_how how;
            bool inverted; /* true = the text between matches counts as the match */
        } cut;
    };
};

typedef struct mha__edit_list {
    mha__edit items[MHA__EDITS];
    int count;
} mha__edit_list;

/* Runs all edits on *text and replaces it with the result, a view of one of `buffers` or the unchanged *text. The words
 * of the result are in pass->words. */
mha_status mha__edits_run(const mha__edit_list *list, mha__pass *pass, mha__aligned buffers[2], mha__slice *text);

/* The implementations of mha__edit.run. Each function reads the settings of the same name. */
mha_status mha__edit_bert(const mha__edit *edit, mha__pass *pass, const mha__slice *in, size_t base);
mha_status mha__edit_drop(const mha__edit *edit, mha__pass *pass, const mha__slice *in, size_t base);
mha_status mha__edit_form(const mha__edit *edit, mha__pass *pass, const mha__slice *in, size_t base);
mha_status mha__edit_charsmap(const mha__edit *edit, mha__pass *pass, const mha__slice *in, size_t base);
mha_status mha__edit_strip(const mha__edit *edit, mha__pass *pass, const mha__slice *in, size_t base);
mha_status mha__edit_replace(const mha__edit *edit, mha__pass *pass, const mha__slice *in, size_t base);
mha_status mha__edit_prefix(const mha__edit *edit, mha__pass *pass, const mha__slice *in, size_t base);
mha_status mha__edit_cut(const mha__edit *edit, mha__pass *pass, const mha__slice *in, size_t base);
mha_status mha__edit_bytes(const mha__edit *edit, mha__pass *pass, const mha__slice *in, size_t base);

#endif
