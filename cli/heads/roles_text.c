/* roles_text.c - see roles_text.h. */
#include "heads/roles_text.h"

#include "output.h"
#include <stdlib.h>
#include <string.h>

const char *const roles_names[HEAD_ROLES] = {"subject", "object", "determiner", "pronoun"};

static int bad(const cli_session *s, const cli_texts *texts, int64_t i, const char *rule, const char *got)
{
    char where[CLI_WHERE];
    return cli_error(s, CLI_REFUSED, "%s%s (got \"%s\")", cli_texts_where(texts, i, where), rule, cli_shown(got));
}

static int too_many(const cli_session *s, const cli_texts *texts, int64_t i, const char *what, const char *got)
{
    char rule[64];
    snprintf(rule, sizeof rule, "a sentence must have at most %d %s", HEAD_ROLES_WORDS, what);
    return bad(s, texts, i, rule, got);
}

static int split_words(const cli_session *s, const cli_texts *texts, int64_t i, roles_sentence *out)
{
    for (size_t at = 0; at < out->bytes;) {
        size_t end = at;
        while (end < out->bytes && out->text[end] != ' ')
            end++;
        size_t last = end;
        while (last > at && strchr(".,;:!?", out->text[last - 1]))
            last--;
        if (last == at)
            return bad(s, texts, i, "words must be separated by single spaces and not be punctuation only", out->text);
        if (out->words == HEAD_ROLES_WORDS) return too_many(s, texts, i, "words", out->text);
        out->begin[out->words] = at;
        out->end[out->words++] = last;
        at = end + 1;
    }
    return CLI_DONE;
}

/* Parses "ROLE LATER>EARLIER" at *at and moves *at past the relation and ", ". Returns false for any other text. */
static bool parse_relation(const char **at, int words, roles_relation *out)
{
    for (int role = 0; role < HEAD_ROLES; role++) {
        const size_t length = strlen(roles_names[role]);
        if (strncmp(*at, roles_names[role], length) != 0 || (*at)[length] != ' ') continue;
        char *end = NULL;
        const long later = strtol(*at + length + 1, &end, 10);
        if (*end != '>') return false;
        const long earlier = strtol(end + 1, &end, 10);
        if (earlier < 1 || later <= earlier || later > words) return false;
        *out = (roles_relation){role, (int)later - 1, (int)earlier - 1};
        if (*end != '\0' && strncmp(end, ", ", 2) != 0) return false;
        *at = *end ? end + 2 : end;
        return true;
    }
    return false;
}

int roles_sentence_read(const cli_session *s, const cli_texts *texts, int64_t i, roles_sentence *out)
{
    const char *text = texts->text[i], *tab = strchr(text, '\t');
    *out = (roles_sentence){.text = text, .bytes = tab ? (size_t)(tab - text) : 0};
    if (!tab) return bad(s, texts, i, "a line must have a sentence, a tab and relations", text);
    const int code = split_words(s, texts, i, out);
    for (const char *at = tab + 1; code == CLI_DONE && *at; out->relations++) {
        if (out->relations == HEAD_ROLES_WORDS) return too_many(s, texts, i, "relations", at);
        const char *relation = at;
        if (!parse_relation(&at, out->words, &out->relation[out->relations]))
            return bad(s, texts, i, "a relation must be ROLE LATER>EARLIER, with word numbers of the sentence",
                       relation);
    }
    return code;
}
