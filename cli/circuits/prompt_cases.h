/* prompt_cases.h - reads the pairs of prompts of `mha patch` and `mha knockout`: from the command line, or from a file
 * of JSON lines. */
#ifndef CLI_CIRCUITS_PROMPT_CASES_H
#define CLI_CIRCUITS_PROMPT_CASES_H

#include "command.h"

/* The command line's description of the prompts; NULL = not given. */
typedef struct prompt_request {
    const char *corrupted, *answer, *wrong, *position, *pairs, *noise, *draws, *times_std;
    const char *line; /* of a file of pairs, such as "pairs.jsonl: line 3: "; NULL = the command line */
    bool alone;       /* only the clean prompt is needed: the corrupted prompt is the same */
} prompt_request;

/* One pair; noise is NULL or the noise of one draw. Without a wrong answer, `wrong` is `answer`. */
typedef struct prompt_case {
    int32_t *clean, *corrupted; /* [length] */
    int64_t length, position;
    int32_t answer, wrong;
    float *noise;
} prompt_case;

typedef struct prompt_cases {
    prompt_case *list;
    int64_t count;
    bool same_length; /* all cases have the same number of tokens */
} prompt_cases;

/* Reads the cases; prints a message and returns an exit code on failure. Call prompt_cases_free in any case. */
int prompt_cases_read(cli_session *session, const mha_model *model, const prompt_request *request, prompt_cases *cases);
void prompt_cases_free(prompt_cases *cases);

/* Finds a token of a prompt: a number (-1 is the last), or the text of a token that occurs once. */
int prompt_position(const cli_session *session, const mha_model *model, const prompt_case *one, const char *option,
                    const char *text, int64_t *position);

/* Writes the readable text of a token, escaped for a terminal, to `text` and returns it. */
enum { PROMPT_TOKEN = 80 };
const char *prompt_token(const mha_model *model, int32_t id, char text[PROMPT_TOKEN]);

#endif
