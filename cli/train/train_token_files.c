/* train_token_files.c - files of token ids, mapped: .npy, and plain numbers of 16 bits, with the header of llm.c or
 * without. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "input/input.h"
#include "input/text_reader.h"
#include "output.h"
#include "session.h"
#include "train/train_sequences.h"

/* The header of llm.c: 256 numbers of 32 bits, magic, version and tokens being the first. */
enum { HEADER = 1024, MAGIC = 20240520, VERSION = 1 };

static int refuse(const cli_session *s, const char *path, const char *why)
{
    return cli_error(s, CLI_REFUSED, "%s: %s", cli_shown(path), why);
}

/* ---- .npy ---- */

static int open_npy(const cli_session *s, const char *path, train_piece *p)
{
    mha_error error = {0};
    const mha_file_options how = {.size = sizeof how, .no_map = s->options.no_map};
    if (mha_file_open(s->ctx, path, &how, &p->file, &error) != MHA_OK) return cli_refuse(s, &error);
    const mha_tensor *t = mha_file_count(p->file) == 1 ? mha_file_tensor(p->file, 0) : NULL;
    if (!t || strcmp(mha_file_format(p->file), "npy") != 0) return refuse(s, path, "must be an .npy file of token ids");
    if (t->dtype != MHA_U16 && t->dtype != MHA_I32 && t->dtype != MHA_I64)
        return cli_error(s, CLI_REFUSED, "%s: elements must be uint16, int32 or int64 (got %s)", cli_shown(path),
                         cli_shown(t->dtype_name));
    p->ids = t->data;
    p->count = t->elements;
    p->dtype = t->dtype;
    return CLI_DONE;
}

/* ---- .bin ---- */

/* Bytes of a header; -1 if there is one that does not fit the file. */
static int64_t header_bytes(const void *data, size_t bytes)
{
    int32_t head[3];
    if (bytes < HEADER) return 0;
    memcpy(head, data, sizeof head);
    if (head[0] != MAGIC) return 0;
    const bool fits = head[1] == VERSION && head[2] >= 0 && (size_t)head[2] * 2 == bytes - HEADER;
    return fits ? HEADER : -1;
}

static int take_bin(const cli_session *s, const char *path, int fd, train_piece *p)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return refuse(s, path, strerror(errno));
    if (st.st_size == 0) return refuse(s, path, "holds no tokens");
    p->mapped = (size_t)st.st_size;
    p->map = mmap(NULL, p->mapped, PROT_READ, MAP_SHARED, fd, 0);
    if (p->map == MAP_FAILED) {
        p->map = NULL;
        return refuse(s, path, strerror(errno));
    }
    const int64_t header = header_bytes(p->map, p->mapped);
    if (header < 0) return refuse(s, path, "the llm.c header must be of version 1 and count the tokens of the file");
    if ((p->mapped - (size_t)header) % 2)
        return refuse(s, path, "ids must have 16 bits each (got an odd number of bytes)");
    p->ids = (const char *)p->map + header;
    p->count = (int64_t)(p->mapped - (size_t)header) / 2;
    p->dtype = MHA_U16;
    return CLI_DONE;
}

static int open_bin(const cli_session *s, const char *path, train_piece *p)
{
    int fd;
    int code = text_reader_open(s, path, &fd);
    if (code != CLI_DONE) return code;
    code = take_bin(s, path, fd, p);
    close(fd);
    return code;
}

int train_ids_open(const cli_session *s, const char *path, train_piece *p)
{
    if (strcmp(path, "-") == 0) return cli_usage(s, "--tokens -: ids are read from files");
    cli_signals_reading(path);
    if (cli_ends(path, ".npy")) return open_npy(s, path, p);
    if (cli_ends(path, ".bin")) return open_bin(s, path, p);
    return refuse(s, path, "the name must end in .npy, or in .bin for ids of 16 bits");
}
