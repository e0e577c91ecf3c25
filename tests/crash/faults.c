/* Preloaded into a command, counts what it changes below a folder, and at the Nth change kills it or fills the disk.

   Opening a file to write, writing, syncing, renaming, truncating and making a folder count; removing files does, too,
   but needs no space. A killed write has written its first half. Of a full disk, the Nth change fails, and then
   everything that needs space. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { COUNT, KILL, FULL };
enum { NEEDS_SPACE, MAY_FAIL, NEVER_FAILS };

static char root[PATH_MAX];
static long chosen = -1;
static int mode;
static atomic_long changes;

void faults_arm(const char *folder, long number, int how) {
    strncpy(root, folder, sizeof root - 1);
    chosen = number, mode = how;
    changes = 0;
}

long faults_count(void) { return changes; }

static int below(const char *path) {
    size_t length = strlen(root);
    return length && strncmp(path, root, length) == 0 && (path[length] == '/' || !path[length]);
}

static int path_below(int folder, const char *path) {
    char base[PATH_MAX + 32], link[64];
    if (path[0] == '/') return below(path);
    if (folder == AT_FDCWD) {
        if (!getcwd(base, PATH_MAX)) return 0;
        return below(base);
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t length = readlink(link, base, PATH_MAX);
    if (length < 0) return 0;
    base[length] = 0;
    return below(base);
}

static int file_below(int file) { return root[0] ? path_below(file, "") : 0; }

/* Whether the change is to fail; with HALF of a write, it is done in part before a kill. */
static int fails(int kind, void (*half)(void *), void *context) {
    long number = ++changes;
    if (mode == KILL && number == chosen) {
        if (half) half(context);
        kill(getpid(), SIGKILL);
        pause();
    }
    int full = mode == FULL && kind != NEVER_FAILS
        && (number == chosen || (number > chosen && kind == NEEDS_SPACE));
    if (full) errno = ENOSPC;
    return full;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int opens_to_write(int folder, const char *path, int flags, int *creates) {
    struct stat status;
    if (!root[0] || !(flags & (O_CREAT | O_WRONLY | O_RDWR | O_TRUNC)) || !path_below(folder, path)) return 0;
    *creates = (flags & O_CREAT) && fstatat(folder, path, &status, AT_SYMLINK_NOFOLLOW) != 0;
    return 1;
}

#define OPEN(name, folder, ...) \
    int creates, permissions = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        permissions = va_arg(rest, int); \
        va_end(rest); \
    } \
    if (opens_to_write(folder, path, flags, &creates) && fails(creates ? NEEDS_SPACE : MAY_FAIL, 0, 0)) return -1; \
    return NEXT(name)(__VA_ARGS__, flags, permissions);

int open(const char *path, int flags, ...) { OPEN(open, AT_FDCWD, path) }
int open64(const char *path, int flags, ...) { OPEN(open64, AT_FDCWD, path) }
int openat(int folder, const char *path, int flags, ...) { OPEN(openat, folder, folder, path) }
int openat64(int folder, const char *path, int flags, ...) { OPEN(openat64, folder, folder, path) }

struct written { int file; const void *data; size_t size; };

static void write_half(void *context) {
    struct written *all = context;
    if (NEXT(write)(all->file, all->data, all->size / 2) < 0) return;
}

ssize_t write(int file, const void *data, size_t size) {
    struct written all = {file, data, size};
    if (file_below(file) && fails(NEEDS_SPACE, write_half, &all)) return -1;
    return NEXT(write)(file, data, size);
}

ssize_t sendfile(int out, int in, off_t *offset, size_t size) {
    if (file_below(out) && fails(NEEDS_SPACE, 0, 0)) return -1;
    return NEXT(sendfile)(out, in, offset, size);
}

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags) {
    if (file_below(out) && fails(NEEDS_SPACE, 0, 0)) return -1;
    return NEXT(copy_file_range)(in, from, out, to, size, flags);
}

int fsync(int file) { return file_below(file) && fails(MAY_FAIL, 0, 0) ? -1 : NEXT(fsync)(file); }
int ftruncate(int file, off_t size) { return file_below(file) && fails(MAY_FAIL, 0, 0) ? -1 : NEXT(ftruncate)(file, size); }
int ftruncate64(int file, off64_t size) { return file_below(file) && fails(MAY_FAIL, 0, 0) ? -1 : NEXT(ftruncate64)(file, size); }

int rename(const char *from, const char *to) {
    if (root[0] && path_below(AT_FDCWD, to) && fails(MAY_FAIL, 0, 0)) return -1;
    return NEXT(rename)(from, to);
}

int mkdir(const char *path, mode_t permissions) {
    if (root[0] && path_below(AT_FDCWD, path) && fails(NEEDS_SPACE, 0, 0)) return -1;
    return NEXT(mkdir)(path, permissions);
}

int unlink(const char *path) {
    if (root[0] && path_below(AT_FDCWD, path)) fails(NEVER_FAILS, 0, 0);
    return NEXT(unlink)(path);
}

int unlinkat(int folder, const char *path, int flags) {
    if (root[0] && path_below(folder, path)) fails(NEVER_FAILS, 0, 0);
    return NEXT(unlinkat)(folder, path, flags);
}

int rmdir(const char *path) {
    if (root[0] && path_below(AT_FDCWD, path)) fails(NEVER_FAILS, 0, 0);
    return NEXT(rmdir)(path);
}
