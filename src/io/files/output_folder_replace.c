/* output_folder_replace.c - replaces an existing folder with a new one, and removes the old one (output_folder.h).
 *
 * Invariant: a folder is removed only if it has been checked to contain nothing but files with known names. Between the
 * check and the exchange of names, another process may create another folder of this name, so the check is repeated
 * after the exchange. */
#include "io/files/output_folder_replace.h"

#include "io/files/folder_entries.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/fs.h>
#include <sys/syscall.h>
#endif

static bool holds_known(DIR *entries, const char *const *known)
{
    struct stat st;
    rewinddir(entries);
    for (const char *e = mha__entries_next(entries); e; e = mha__entries_next(entries))
        if (fstatat(dirfd(entries), e, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            (S_ISDIR(st.st_mode) || !mha__entries_known(e, known)))
            return false;
    return true;
}

/* Opens and checks the old folder, which is now called `name`, if another process has replaced the folder that was
 * checked. Returns 0, or an errno: ENOENT if it has been removed, ENOTEMPTY if it contains files that must not be
 * removed. */
static int open_again(const mha__folder *f, const char *name, const char *const *known, mha__replaced *r)
{
    if (!mha__entry_is(f->dir, name, dirfd(r->old))) {
        DIR *now = mha__entries_open(f->dir, name);
        if (!now) return errno;
        mha__entry_lock(dirfd(now), false);
        closedir(r->old);
        r->old = now;
    }
    return f->aside[0] || holds_known(r->old, known) ? 0 : ENOTEMPTY;
}

/* Renames the old folder, now called `name`, to the name `aside`, or removes it. `changed` is the result of open_again.
 * Returns 0; on failure, returns an errno and sets `left`. */
static int put_aside(const mha__folder *f, const char *name, int changed, mha__replaced *r)
{
    if (changed == ENOENT) return 0;
    if (f->aside[0] && r->aside) mha__entries_remove(f->dir, f->aside, r->aside);
    if (f->aside[0] && renameat(f->dir, name, f->dir, f->aside) == 0) return 0;
    const int failed = changed ? changed : mha__entries_remove(f->dir, name, r->old);
    if (failed) r->left = name;
    return failed;
}

/* Atomically exchanges the names of the existing folder and the temporary folder. Returns 0, or an errno. */
static int exchange_names(const mha__folder *f)
{
#if defined(__linux__) && defined(SYS_renameat2) && defined(RENAME_EXCHANGE)
    return syscall(SYS_renameat2, f->dir, f->temporary, f->dir, f->name, RENAME_EXCHANGE) == 0 ? 0 : errno;
#else
    (void)f;
    return ENOSYS;
#endif
}

/* Renames the old folder, then moves the new folder to its name. Returns 0, or an errno. */
static int rename_both(const mha__folder *f, const char *const *known, mha__replaced *r)
{
    mha__entry_temporary(f->name, "old", r->name);
    if (renameat(f->dir, f->name, f->dir, r->name) != 0) return errno;
    const int changed = open_again(f, r->name, known, r);
    int failed = changed == ENOTEMPTY ? ENOENT : 0;
    if (!failed && renameat(f->dir, f->temporary, f->dir, f->name) == 0) return put_aside(f, r->name, changed, r);
    if (!failed) failed = errno;
    return renameat(f->dir, r->name, f->dir, f->name) == 0 ? failed : errno;
}

/* Moves the new folder to its final name. Returns 0, or an errno: ENOENT if another process has changed the entry; the
 * entry must then be checked again. */
static int swap(const mha__folder *f, const char *const *known, mha__replaced *r)
{
    const int failed = exchange_names(f);
    if (failed == ENOSYS || failed == EINVAL) return rename_both(f, known, r);
    if (failed) return failed;
    const int changed = open_again(f, f->temporary, known, r);
    if (changed == ENOTEMPTY && exchange_names(f) == 0) return ENOENT;
    return put_aside(f, f->temporary, changed, r);
}

/* Exchanges the folders. Holds the lock until the old folder is renamed or removed, so other processes do not
 * mistake it for a leftover. */
int mha__folder_exchange(const mha__folder *f, const char *const *known, mha__replaced *r)
{
    r->old = mha__entries_open(f->dir, f->name);
    if (!r->old) return errno;
    if (f->aside[0]) r->aside = mha__entries_open(f->dir, f->aside);
    const bool ready = r->aside || !f->aside[0] || errno == ENOENT;
    int failed = ready ? 0 : errno;
    mha__entry_lock(dirfd(r->old), false);
    if (ready) failed = swap(f, known, r);
    closedir(r->old);
    if (r->aside) closedir(r->aside);
    return failed;
}
