/* roles_text.h - reads a text in which syntactic roles are tagged (head_roles.h). */
#ifndef CLI_HEADS_ROLES_TEXT_H
#define CLI_HEADS_ROLES_TEXT_H

#include "heads/head_roles.h"

extern const char *const roles_names[HEAD_ROLES];

typedef struct roles_relation {
    int role, later, earlier; /* index in roles_names; word numbers, from 0 */
} roles_relation;

/* A sentence: the bytes of its words without punctuation at their end, and its relations. */
typedef struct roles_sentence {
    const char *text; /* not terminated */
    size_t bytes;
    int words, relations;
    size_t begin[HEAD_ROLES_WORDS], end[HEAD_ROLES_WORDS];
    roles_relation relation[HEAD_ROLES_WORDS];
} roles_sentence;

/* Reads text i. Prints an error that names the file and the line; returns an exit code. */
int roles_sentence_read(const cli_session *session, const cli_texts *texts, int64_t i, roles_sentence *sentence);

#endif
