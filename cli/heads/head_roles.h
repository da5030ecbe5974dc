/* head_roles.h - measures which heads follow syntactic roles, on a text in which roles are tagged.
 *
 * A file has one sentence per line, a tab, and its relations, separated by ", ": "ROLE LATER>EARLIER", where ROLE is
 * subject, object, determiner or pronoun, and LATER and EARLIER are the numbers of two words of the sentence, from 1.
 * Words are separated by single spaces. A relation leads from a word to an earlier word, so that it is defined for
 * decoders too:
 *
 *     subject      from a verb to its subject
 *     object       from an object to its verb
 *     determiner   from a noun to its determiner
 *     pronoun      from a pronoun to its antecedent
 *
 * Measure (Voita et al. 2019). The query is the last token of the later word. A head predicts a relation if,
 * among the tokens of all other words up to the query (in encoders, of the whole sentence), the largest weight is on a
 * token of the earlier word; special tokens and the later word itself are not counted. `accuracy` is the fraction of
 * predicted relations, and `mass` the mean weight on the earlier word, over all keys.
 *
 * Chance level. `offset` is the accuracy of the best head that only counts words: the largest fraction of relations of
 * the role that have the same distance. `uniform` is the mean mass of uniform weights. A head has a role if its
 * accuracy is at least offset + HEAD_ROLES_MARGIN; with several roles, the role with the largest excess. */
#ifndef CLI_HEADS_HEAD_ROLES_H
#define CLI_HEADS_HEAD_ROLES_H

#include "command.h"
#include "input/input.h"
#include <jansson.h>

enum { HEAD_ROLES = 4, HEAD_ROLES_WORDS = 64 };
#define HEAD_ROLES_MARGIN 0.10 /* as in Voita et al. 2019 */

typedef struct head_roles head_roles;

/* Reads the tagged text and runs the model on each sentence. Prints errors, which name file and line; returns an exit
 * code. Free *out even after a failure. */
int head_roles_measure(cli_session *session, const mha_model *model, const char *path, head_roles **out);
void head_roles_free(head_roles *roles);

/* Returns {file, sentences, margin, relations, offset, uniform: {role: number}, accuracy,
 * mass: {role: [layers][heads]}, labels: [layers][heads] role or null}; NULL if memory is exhausted. */
json_t *head_roles_json(const head_roles *roles, const mha_heads *heads);
/* Prints a line per role, with its chance level and the heads of the largest accuracy; a star marks heads that have the
 * role. */
void head_roles_print(const cli_session *session, const mha_model *model, const head_roles *roles);

#endif
