/* Makes the n-th call of one kind fail, or kills the process there. Loaded with LD_PRELOAD into the binary under test.
 *
 * Only calls on paths below FAULT_DIRS (separated by ':') are counted, or on descriptors of such files. The kinds are
 * open, read, readdir, write, fsync, rename, unlink, stat, mkdir, close and mmap.
 *
 *   FAULT_LOG     file to which every counted call is appended, as "kind path", and "fired kind path" for the fault
 *   FAULT_KIND    kind of the call that fails; without it, calls are only counted
 *   FAULT_NTH     which call of that kind, from 1
 *   FAULT_ACTION  error (default), short (read and write only), kill-before, kill-after
 *   FAULT_ERRNO   number of the error
 *   FAULT_ALWAYS  if set, all later calls of that kind fail, too
 *
 * Calls that do not go through libc are not seen: flock, which the binary makes by a raw system call, is the only one
 * that concerns files.
 */
#include "intercept.h"

#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

enum kind { OPEN, READ, READDIR, WRITE, FSYNC, RENAME, UNLINK, STAT, MKDIR, CLOSE, MMAP, KINDS };

static const char *const names[KINDS] = {"open",   "read", "readdir", "write", "fsync", "rename",
                                         "unlink", "stat", "mkdir",   "close", "mmap"};

enum action { NONE, ERROR, SHORT, KILL_AFTER };

static int counts[KINDS];

static void append(const char *prefix, const char *kind, const char *path)
{
    const char *log = getenv("FAULT_LOG");
    if (!log)
        return;
    char line[PATH_MAX + 64];
    int length = snprintf(line, sizeof line, "%s%s %s\n", prefix, kind, path);
    if (length > (int)sizeof line - 1)
        length = sizeof line - 1;
    int fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    syscall(SYS_write, fd, line, length);
    syscall(SYS_close, fd);
}

static void die(void)
{
    syscall(SYS_kill, (long)getpid(), SIGKILL);
    for (;;)
        syscall(SYS_pause);
}

/* Counts a call on `path` and decides what happens to it; sets errno for an error. */
static enum action decide(enum kind kind, const char *path)
{
    if (!path || !is_below(path, getenv("FAULT_DIRS")))
        return NONE;
    int n = __atomic_add_fetch(&counts[kind], 1, __ATOMIC_SEQ_CST);
    const char *wanted = getenv("FAULT_KIND");
    if (!wanted) {
        append("", names[kind], path);
        return NONE;
    }
    int nth = atoi(getenv("FAULT_NTH"));
    if (strcmp(wanted, names[kind]) != 0 || !(n == nth || (n > nth && getenv("FAULT_ALWAYS"))))
        return NONE;
    if (n == nth)
        append("fired ", names[kind], path);
    const char *action = getenv("FAULT_ACTION");
    if (action && strcmp(action, "kill-before") == 0)
        die();
    if (action && strcmp(action, "kill-after") == 0)
        return KILL_AFTER;
    if (action && strcmp(action, "short") == 0)
        return SHORT;
    errno = atoi(getenv("FAULT_ERRNO"));
    return ERROR;
}

static enum action decide_at(enum kind kind, int dir, const char *name)
{
    char buffer[PATH_MAX];
    int saved = errno;
    const char *path = path_at(dir, name, buffer);
    errno = saved;
    return decide(kind, path);
}

static enum action decide_fd(enum kind kind, int fd)
{
    return fd < 0 ? NONE : decide_at(kind, fd, "");
}

#define CALL(failed, decision, call)                                                                                   \
    enum action action = decision;                                                                                     \
    if (action == ERROR)                                                                                               \
        return failed;                                                                                                 \
    __typeof__(call) result = call;                                                                                    \
    if (action == KILL_AFTER)                                                                                          \
        die();                                                                                                         \
    return result

int open(const char *path, int flags, ...)
{
    NEXT(open);
    MODE();
    CALL(-1, decide(OPEN, path), next(path, flags, mode));
}

int open64(const char *path, int flags, ...)
{
    NEXT(open64);
    MODE();
    CALL(-1, decide(OPEN, path), next(path, flags, mode));
}

int openat(int dir, const char *path, int flags, ...)
{
    NEXT(openat);
    MODE();
    CALL(-1, decide_at(OPEN, dir, path), next(dir, path, flags, mode));
}

int openat64(int dir, const char *path, int flags, ...)
{
    NEXT(openat64);
    MODE();
    CALL(-1, decide_at(OPEN, dir, path), next(dir, path, flags, mode));
}

DIR *opendir(const char *path)
{
    NEXT(opendir);
    CALL(NULL, decide(OPEN, path), next(path));
}

struct dirent64 *readdir64(DIR *dir)
{
    NEXT(readdir64);
    CALL(NULL, decide_fd(READDIR, dirfd(dir)), next(dir));
}

/* A transfer that may be short: half of the requested bytes, but at least one. */
#define TRANSFER(kind, call)                                                                                           \
    enum action action = decide_fd(kind, fd);                                                                          \
    if (action == ERROR)                                                                                               \
        return -1;                                                                                                     \
    if (action == SHORT && bytes > 1)                                                                                  \
        bytes /= 2;                                                                                                    \
    ssize_t result = call;                                                                                             \
    if (action == KILL_AFTER)                                                                                          \
        die();                                                                                                         \
    return result

ssize_t read(int fd, void *buffer, size_t bytes)
{
    NEXT(read);
    TRANSFER(READ, next(fd, buffer, bytes));
}

ssize_t pread64(int fd, void *buffer, size_t bytes, off64_t offset)
{
    NEXT(pread64);
    TRANSFER(READ, next(fd, buffer, bytes, offset));
}

ssize_t readv(int fd, const struct iovec *parts, int count)
{
    NEXT(readv);
    CALL(-1, decide_fd(READ, fd), next(fd, parts, count));
}

ssize_t write(int fd, const void *buffer, size_t bytes)
{
    NEXT(write);
    TRANSFER(WRITE, next(fd, buffer, bytes));
}

ssize_t pwrite64(int fd, const void *buffer, size_t bytes, off64_t offset)
{
    NEXT(pwrite64);
    TRANSFER(WRITE, next(fd, buffer, bytes, offset));
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    NEXT(writev);
    CALL(-1, decide_fd(WRITE, fd), next(fd, parts, count));
}

int fsync(int fd)
{
    NEXT(fsync);
    CALL(-1, decide_fd(FSYNC, fd), next(fd));
}

int fdatasync(int fd)
{
    NEXT(fdatasync);
    CALL(-1, decide_fd(FSYNC, fd), next(fd));
}

int rename(const char *from, const char *to)
{
    NEXT(rename);
    CALL(-1, decide(RENAME, from), next(from, to));
}

int unlink(const char *path)
{
    NEXT(unlink);
    CALL(-1, decide(UNLINK, path), next(path));
}

int unlinkat(int dir, const char *path, int flags)
{
    NEXT(unlinkat);
    CALL(-1, decide_at(UNLINK, dir, path), next(dir, path, flags));
}

int rmdir(const char *path)
{
    NEXT(rmdir);
    CALL(-1, decide(UNLINK, path), next(path));
}

int mkdir(const char *path, mode_t mode)
{
    NEXT(mkdir);
    CALL(-1, decide(MKDIR, path), next(path, mode));
}

int stat64(const char *path, struct stat64 *out)
{
    NEXT(stat64);
    CALL(-1, decide(STAT, path), next(path, out));
}

int lstat64(const char *path, struct stat64 *out)
{
    NEXT(lstat64);
    CALL(-1, decide(STAT, path), next(path, out));
}

int fstat64(int fd, struct stat64 *out)
{
    NEXT(fstat64);
    CALL(-1, decide_fd(STAT, fd), next(fd, out));
}

int fstatat64(int dir, const char *path, struct stat64 *out, int flags)
{
    NEXT(fstatat64);
    CALL(-1, decide_at(STAT, dir, path), next(dir, path, out, flags));
}

int statx(int dir, const char *path, int flags, unsigned int mask, struct statx *out)
{
    NEXT(statx);
    CALL(-1, decide_at(STAT, dir, path), next(dir, path, flags, mask, out));
}

char *realpath(const char *path, char *out)
{
    NEXT(realpath);
    CALL(NULL, decide(STAT, path), next(path, out));
}

/* The descriptor is closed in any case, as the kernel does. */
int close(int fd)
{
    NEXT(close);
    enum action action = decide_fd(CLOSE, fd);
    int error = errno;
    int result = next(fd);
    if (action == KILL_AFTER)
        die();
    if (action == ERROR) {
        errno = error;
        return -1;
    }
    return result;
}

void *mmap64(void *at, size_t bytes, int protection, int flags, int fd, off64_t offset)
{
    NEXT(mmap64);
    CALL(MAP_FAILED, decide_fd(MMAP, fd), next(at, bytes, protection, flags, fd, offset));
}
