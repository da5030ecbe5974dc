/* train_sequences.h - what is learned from: tokens of texts or of files of ids, cut into sequences of one length.
 *
 * A decoder's sequence is `length` tokens that stand behind one another, and the last of them is the first of the next
 * sequence: every token but the first is predicted once. An encoder's is `length` - 2 of them between [CLS] and [SEP].
 * No sequence goes over the end of a file of ids. Tokens that fill none are left out; data that are shorter than one
 * sequence make a shorter one. Where an encoder is not asked for masked tokens, each text is a sequence of its own, as
 * long as it is, or cut to `length`.
 */
#ifndef CLI_TRAIN_TRAIN_SEQUENCES_H
#define CLI_TRAIN_TRAIN_SEQUENCES_H

#include "command.h"
#include "train/train_settings.h"

/* What the model wants to read. */
typedef struct train_form {
    int64_t length, vocab;
    const mha_tokenizer *tokenizer; /* NULL: ids only */
    bool causal;
    bool masks;          /* an encoder is to predict masked tokens */
    bool apart;          /* each text is a sequence */
    int32_t end;         /* stands behind each text; for encoders [SEP] */
    int32_t first, mask; /* of encoders: [CLS], [MASK] */
} train_form;

/* Tokens that stand behind one another. */
typedef struct train_piece {
    const void *ids; /* [count] may be misaligned */
    int64_t count, sequences;
    mha_dtype dtype;
    int64_t *ends; /* [sequences] of texts that are sequences: behind their last token */
    void *memory;  /* its own, or */
    void *map;     /* a mapped file of `mapped` bytes, or */
    size_t mapped;
    mha_file *file;
} train_piece;

typedef struct train_data {
    train_form form;
    train_piece *piece; /* [pieces] */
    int pieces;
    int64_t tokens, sequences;
    mha_train_digest digest; /* of all ids: tells whether data changed */
} train_data;

/* Reads texts (`how` as --documents, or NULL) or maps files of ids; every id is checked. Free *data in any case.
 * Returns an exit code; the message has been printed. */
int train_data_texts(const cli_session *s, const train_form *form, const train_list *paths, const char *how,
                     train_data *data);
int train_data_ids(const cli_session *s, const train_form *form, const train_list *paths, train_data *data);
void train_data_free(train_data *data);
/* Data of fewer tokens than a sequence has, named after their first file: refused, or taken as one sequence with a
 * shorter length, which is logged. */
int train_data_enough(const cli_session *s, const train_data *data, const char *name);
int train_data_shorten(const cli_session *s, train_data *data, const char *name);

/* Sequence n: [length] ids; of a text that is one, fewer. Returns how many. */
int64_t train_data_sequence(const train_data *data, int64_t n, int32_t *ids);

/* ---- its parts ---- */

/* All texts as one piece (train_text.c). */
int train_text_read(const cli_session *s, const train_form *form, const train_list *paths, const char *how,
                    train_piece *piece);
/* The ids of a file (train_token_files.c). */
int train_ids_open(const cli_session *s, const char *path, train_piece *piece);

#endif
