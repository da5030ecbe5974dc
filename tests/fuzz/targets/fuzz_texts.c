/* fuzz_texts.c - reads bytes as a file of texts; the first byte selects where texts end and whether NUL is allowed.
 * Texts must be valid UTF-8, with ascending line numbers. A file read in parts must give the same text as in one call.
 */
#include "base/utf8.h"
#include "fuzz.h"
#include "input/text_reader.h"
#include "program.h"
#include "support/files.h"
#include <stdlib.h>
#include <string.h>

/* The concatenation of all texts read so far. */
typedef struct taken {
    char *text; /* `room` is the number of allocated bytes */
    size_t bytes, room;
    int64_t line, texts;
    int whole; /* true if the last text has ended */
    int allow_nul;
} taken;

static int take(void *user, const char *text, size_t bytes, int64_t line, bool last)
{
    taken *t = user;
    fuzz_check(mha__utf8_check(text, bytes) == bytes && text[bytes] == '\0', "a text must be UTF-8 and end with NUL");
    fuzz_check(t->allow_nul || strlen(text) == bytes, "a text must not contain NUL");
    fuzz_check(t->texts == 0 || (t->whole ? line > t->line : line >= t->line), "line numbers of texts must ascend");
    fuzz_check(bytes <= t->room - t->bytes, "texts must not be longer than their file");
    memcpy(t->text + t->bytes, text, bytes);
    t->bytes += bytes;
    t->line = line;
    t->whole = last;
    t->texts += last;
    return CLI_DONE;
}

static int read_texts(const char *path, unsigned how, size_t part, taken *t)
{
    const cli_session *session = fuzz_session(path);
    text_reader reader = {.session = session,
                          .how = (cli_documents)(how % 3),
                          .allow_nul = how & 4,
                          .part = part,
                          .take = take,
                          .user = t};
    t->allow_nul = how & 4;
    const int code = text_reader_read(&reader, path);
    fuzz_code(code);
    fuzz_check(code != CLI_DONE || t->texts == 0 || t->whole, "every text must end");
    return code;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n == 0) return 0;
    const char *path = files_path(fuzz_folder(), "texts.txt");
    taken one = {.text = malloc(n), .room = n}, parts = {.text = malloc(n), .room = n};
    files_write(path, bytes + 1, n - 1);
    const int code = read_texts(path, bytes[0], 0, &one);
    if (code == CLI_DONE && one.texts && bytes[0] % 3 == CLI_WHOLE) {
        fuzz_check(read_texts(path, bytes[0], 1 + bytes[0] / 16, &parts) == CLI_DONE,
                   "text read in parts must be accepted");
        fuzz_check(parts.bytes == one.bytes && memcmp(parts.text, one.text, one.bytes) == 0,
                   "text read in parts must equal text read in one call");
    }
    free(one.text);
    free(parts.text);
    return 0;
}
