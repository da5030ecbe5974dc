/* json_lines.c - parses JSON texts with the library's reader, for test_json.py. The input is a series of "N\n" and a
 * text of N bytes. For each text, the program prints one line: the text as the library writes it, or "refused". */
#include "base/ctx.h"
#include "io/json/json_write.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void answer(const char *text, size_t n)
{
    const mha__json *root = NULL;
    mha__json_writer w = {0};
    char *written = NULL;
    mha_error err = {0};
    if (mha__json_parse(NULL, "x.json", text, n, 0, &root, &err) != MHA_OK) {
        puts(err.status == MHA_ERR_FORMAT && strncmp(err.message, "x.json: ", 8) == 0 ? "refused" : err.message);
        return;
    }
    mha__json_put(&w, root);
    if (mha__json_written(&w, "x.json", &written, NULL, &err) == MHA_OK) puts(written);
    mha__free(NULL, written);
    mha__json_free(root);
}

int main(void)
{
    unsigned long n;
    while (scanf("%lu", &n) == 1 && getchar() == '\n') {
        char *text = malloc(n + 1);
        if (!text || fread(text, 1, n, stdin) != n) return 1;
        answer(text, n);
        free(text);
    }
    return 0;
}
