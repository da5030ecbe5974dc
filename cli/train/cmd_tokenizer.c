/* cmd_tokenizer.c - `mha tokenizer train`: trains a tokenizer on texts. */
#include "commands.h"
#include "input/input.h"
#include "input/text_reader.h"
#include "options.h"
#include "output.h"
#include "output_is_input.h"
#include "session.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    const char *type, *vocab_size, *min_frequency, *alphabet;
    const char **special, **files; /* values of --special and -f, NULL-terminated; NULL if not given */
    int lowercase;
} given;

static const struct poptOption options[] = {
    {"type", 0, POPT_ARG_STRING, &given.type, 0, "bpe: byte-level, like GPT-2 (default); wordpiece: like BERT", "TYPE"},
    {"vocab-size", 0, POPT_ARG_STRING, &given.vocab_size, 0, "number of tokens, including special tokens", "N"},
    {"min-frequency", 0, POPT_ARG_STRING, &given.min_frequency, 0,
     "merge only pairs that occur at least N times (default: 2)", "N"},
    {"special", 0, POPT_ARG_ARGV, &given.special, 0, "add a special token; may be repeated", "TOKEN"},
    {"lowercase", 0, POPT_ARG_NONE, &given.lowercase, 0, "wordpiece: convert to lower case and remove accents", NULL},
    {"alphabet", 0, POPT_ARG_STRING, &given.alphabet, 0, "wordpiece: keep only the N most frequent characters", "N"},
    {"file", 'f', POPT_ARG_ARGV, &given.files, 0, "train on FILE (- for stdin); further arguments are also files",
     "FILE"},
    POPT_TABLEEND};

/* The trainer that receives the texts, and the byte counts for the progress line. */
typedef struct reading {
    cli_session *session;
    mha_tokenizer_trainer *trainer;
    int64_t done, total; /* bytes read, and bytes of all regular files */
} reading;

/* ---- reading texts ---- */

static int refuse_file(const reading *r, const char *path, const mha_error *error)
{
    const int code = error->status == MHA_ERR_MEMORY ? CLI_FAILED : CLI_REFUSED;
    return cli_error(r->session, code, "%s: %s", text_reader_name(path), error->message);
}

static int put_block(reading *r, const char *path, const char *block, size_t bytes)
{
    mha_error error = {0};
    if (bytes && mha_tokenizer_trainer_put(r->trainer, block, bytes, &error) != MHA_OK)
        return refuse_file(r, path, &error);
    return CLI_DONE;
}

/* Passes the contents of the file to the trainer, without a byte order mark. To detect the mark, the first block must
 * have at least 3 bytes. */
static int read_descriptor(reading *r, const char *path, int fd)
{
    static const char mark[] = {'\xEF', '\xBB', '\xBF'};
    static char block[1 << 16];
    size_t kept = 0; /* number of bytes in the buffer that have not been passed on */
    bool first = true;
    for (;;) {
        mha_error error = {0};
        const ssize_t n = read(fd, block + kept, sizeof block - kept);
        if (cli_stopped()) return cli_stopped();
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return cli_error(r->session, CLI_REFUSED, "%s: %s", text_reader_name(path), strerror(errno));
        kept += (size_t)n;
        if (n > 0 && kept < sizeof mark && first) continue;
        const size_t skipped = first && kept >= sizeof mark && memcmp(block, mark, sizeof mark) == 0 ? sizeof mark : 0;
        const int code = put_block(r, path, block + skipped, kept - skipped);
        if (code != CLI_DONE) return code;
        first = false;
        kept = 0;
        if (n == 0 && mha_tokenizer_trainer_end(r->trainer, &error) != MHA_OK) return refuse_file(r, path, &error);
        if (n == 0) return CLI_DONE;
        r->done += n;
        if (r->done < r->total) cli_progress("read", r->done, r->total);
    }
}

static int read_file(reading *r, const char *path)
{
    int fd;
    int code = text_reader_open(r->session, path, &fd);
    if (code != CLI_DONE) return code;
    code = read_descriptor(r, path, fd);
    if (fd != STDIN_FILENO) close(fd);
    return code;
}

static void add_size(reading *r, const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) r->total += st.st_size;
}

static int read_files(reading *r)
{
    const cli_session *s = r->session;
    int code = CLI_DONE;
    for (int i = 0; given.files[i]; i++)
        add_size(r, given.files[i]);
    for (int i = 1; i < s->arg_count; i++)
        add_size(r, s->args[i]);
    for (int i = 0; given.files[i] && code == CLI_DONE; i++)
        code = read_file(r, given.files[i]);
    for (int i = 1; i < s->arg_count && code == CLI_DONE; i++)
        code = read_file(r, s->args[i]);
    cli_progress_clear();
    return code;
}

/* Trains on the arguments as texts; reads standard input if the only argument is "-" or there are no arguments. */
static int read_arguments(reading *r)
{
    const cli_session *s = r->session;
    const bool dash = s->arg_count == 2 && strcmp(s->args[1], "-") == 0;
    if (dash || s->arg_count == 1) return read_file(r, "-");
    for (int i = 1; i < s->arg_count; i++) {
        const char *text = s->args[i];
        mha_error error = {0};
        cli_texts_hint(s, text);
        mha_status status = mha_tokenizer_trainer_put(r->trainer, text, strlen(text), &error);
        if (status == MHA_OK) status = mha_tokenizer_trainer_end(r->trainer, &error);
        char what[32];
        snprintf(what, sizeof what, "text %d", i);
        if (status != MHA_OK) return refuse_file(r, what, &error);
    }
    return CLI_DONE;
}

/* ---- options and output ---- */

static int read_options(const cli_session *s, mha_tokenizer_train_options *o)
{
    long long vocab = 0, frequency = 0, alphabet = 0;
    int code = cli_whole(s, "--vocab-size", given.vocab_size, 1, INT32_MAX, &vocab);
    if (code == CLI_DONE) code = cli_whole(s, "--min-frequency", given.min_frequency, 1, INT32_MAX, &frequency);
    if (code == CLI_DONE) code = cli_whole(s, "--alphabet", given.alphabet, 1, INT32_MAX, &alphabet);
    if (code != CLI_DONE) return code;
    if (!given.vocab_size) return cli_usage(s, "missing --vocab-size N");
    const bool wordpiece = given.type && strcmp(given.type, "wordpiece") == 0;
    if (given.type && !wordpiece && strcmp(given.type, "bpe") != 0)
        return cli_usage(s, "--type must be one of bpe, wordpiece (got \"%s\")", cli_shown(given.type));
    if (!wordpiece && (given.lowercase || given.alphabet))
        return cli_usage(s, "%s requires --type wordpiece", given.lowercase ? "--lowercase" : "--alphabet");
    *o = (mha_tokenizer_train_options){.size = sizeof *o,
                                       .type = wordpiece ? MHA_TOKENIZER_WORDPIECE : MHA_TOKENIZER_BPE,
                                       .vocab_size = vocab,
                                       .min_frequency = frequency,
                                       .special = given.special,
                                       .lowercase = given.lowercase,
                                       .alphabet = alphabet};
    while (given.special && given.special[o->special_count])
        o->special_count++;
    return CLI_DONE;
}

static int check(const cli_session *s)
{
    if (s->arg_count == 0 || strcmp(s->args[0], "train") != 0)
        return cli_usage(s, "the first argument must be train (got \"%s\")", s->arg_count ? cli_shown(s->args[0]) : "");
    if (!given.files && s->arg_count == 1 && !text_reader_piped())
        return cli_usage(s, "missing text: give one or more texts, or -f FILE");
    if (!s->options.out) return cli_usage(s, "missing -o FOLDER");
    int code = CLI_DONE;
    for (int i = 1; given.files && i < s->arg_count && code == CLI_DONE; i++)
        code = cli_input_check(s, "-o", s->options.out, "-f", s->args[i]);
    return code == CLI_DONE ? cli_check_out_folder(s) : code;
}

static int put_result(cli_session *s, const mha_tokenizer_train_options *o, const mha_tokenizer_trained *t)
{
    const char *type = o->type == MHA_TOKENIZER_WORDPIECE ? "wordpiece" : "bpe";
    if (s->options.json)
        return cli_put_json(
            s,
            json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "out", cli_shown(s->options.out), "type",
                      type, "tokens", (json_int_t)t->tokens, "characters", (json_int_t)t->characters, "merges",
                      (json_int_t)t->merges, "rarest", (json_int_t)t->rarest, "words", (json_int_t)t->words, "distinct",
                      (json_int_t)t->distinct, "lines", (json_int_t)t->lines, "bytes", (json_int_t)t->bytes),
            false);
    fprintf(s->out, "%s: %lld tokens, including %lld characters\n", cli_out_name(s), (long long)t->tokens,
            (long long)t->characters);
    fprintf(s->out, "%strained on %lld words (%lld distinct); the last merged pair occurred %lld times%s\n", cli_dim(s),
            (long long)t->words, (long long)t->distinct, (long long)t->rarest, cli_plain(s));
    return CLI_DONE;
}

static int train(cli_session *s, const mha_tokenizer_train_options *o, mha_tokenizer_trainer *trainer)
{
    reading r = {.session = s, .trainer = trainer};
    mha_error error = {0};
    int code = given.files ? read_files(&r) : read_arguments(&r);
    if (code != CLI_DONE) return code;
    mha_status status = mha_tokenizer_trainer_run(trainer, NULL, &error);
    cli_progress_clear();
    if (status == MHA_OK) status = mha_tokenizer_trainer_save(trainer, s->options.out, s->options.force, &error);
    if (status != MHA_OK) return cli_fail(s, &error);
    mha_tokenizer_trained trained;
    mha_tokenizer_trainer_trained(trainer, &trained);
    if (trained.tokens < o->vocab_size)
        cli_say(s, "stopped at %lld tokens: no other pair occurs %lld times", (long long)trained.tokens,
                (long long)(o->min_frequency ? o->min_frequency : 2));
    return put_result(s, o, &trained);
}

static void free_list(const char **list)
{
    for (int i = 0; list && list[i]; i++)
        free((char *)list[i]); /* popt allocates copies of list arguments */
    free(list);
}

static int run(cli_session *s)
{
    mha_tokenizer_train_options o;
    mha_tokenizer_trainer *trainer = NULL;
    mha_error error = {0};
    int code = check(s);
    if (code == CLI_DONE) code = read_options(s, &o);
    if (code == CLI_DONE && mha_tokenizer_trainer_create(s->ctx, &o, &trainer, &error) != MHA_OK)
        code = cli_fail(s, &error);
    if (code == CLI_DONE) code = train(s, &o, trainer);
    mha_tokenizer_trainer_free(trainer);
    free_list(given.special);
    free_list(given.files);
    return code;
}

static const char *const words[] = {"train", NULL};

const cli_command cli_tokenizer = {
    .name = "tokenizer",
    .summary = "train a tokenizer on texts",
    .usage = "train --vocab-size N -o FOLDER TEXT...",
    .details =
        "Byte pair encoding merges the most frequent pair of adjacent tokens into a new token until there are N "
        "tokens. The result is identical to that of the tokenizers library on the same lines, for any number of "
        "threads. Each line is a text. Files must be UTF-8 and may have any size, because they are streamed; memory "
        "grows with the number of distinct words.\n"
        "FOLDER receives the files that mha, tokenizers and transformers load: tokenizer.json, tokenizer_config.json, "
        "special_tokens_map.json, and vocab.json with merges.txt, or vocab.txt. The folder is written completely or "
        "not at all. Special tokens have the first ids: <|endoftext|>, or [PAD] [UNK] [CLS] [SEP] [MASK], followed by "
        "the tokens of --special.\n"
        "--json prints {out, type, tokens, characters, merges, rarest, words, distinct, lines, bytes}; rarest is the "
        "frequency of the last merged pair.",
    .words = words,
    .shared = CLI_OUT | CLI_JSON,
    .options = options,
    .examples =
        "mha tokenizer train --vocab-size 500 -o tokenizer -f stories.txt\n"
        "mha tokenizer train --type wordpiece --lowercase --vocab-size 500 \\\n    -o words -f stories.txt notes.txt\n",
    .run = run,
};
