/* Records every call that changes files, in one order for all threads and processes, with the data. Loaded with
 * LD_PRELOAD into the binary under test.
 *
 *   RECORD_DIR  only calls on files below this directory are recorded
 *   RECORD_LOG  file to which the records are appended
 *
 * A record is: kind (one letter), path and second path (each 16 bits of length, then the bytes), offset (64 bits), data
 * (64 bits of length, then the bytes); all numbers in native byte order. Only calls that succeed are recorded.
 * Each call is made and recorded under a lock on the log, so that the records are in the order of the effects.
 */
#include "intercept.h"

#include <stdint.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>

enum kind {
    CREATE = 'c',
    WRITE = 'w',
    SET_LENGTH = 'l',
    SYNC = 's',
    RENAME = 'r',
    UNLINK = 'u',
    MAKE_DIR = 'm',
    REMOVE_DIR = 'd'
};

/* Whether calls on `path` are recorded. */
static int is_recorded(const char *path)
{
    return path && is_below(path, getenv("RECORD_DIR"));
}

/* Opens and locks the log. Every lock has its own open file description, so that it excludes other threads, too. */
static int lock(void)
{
    int saved = errno;
    int log = syscall(SYS_openat, AT_FDCWD, getenv("RECORD_LOG"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    while (flock(log, LOCK_EX) != 0 && errno == EINTR)
        ;
    errno = saved;
    return log;
}

static void unlock(int log)
{
    int saved = errno;
    syscall(SYS_close, log);
    errno = saved;
}

static void put(int log, const void *bytes, size_t length)
{
    const char *at = bytes;
    while (length > 0) {
        long written = syscall(SYS_write, log, at, length);
        if (written < 0)
            abort();
        at += written;
        length -= written;
    }
}

static void put_path(int log, const char *path)
{
    uint16_t length = strlen(path);
    put(log, &length, sizeof length);
    put(log, path, length);
}

static void record(int log, enum kind kind, const char *path, const char *second, uint64_t offset, const void *data,
                   uint64_t length)
{
    int saved = errno;
    char letter = kind;
    put(log, &letter, 1);
    put_path(log, path);
    put_path(log, second);
    put(log, &offset, sizeof offset);
    put(log, &length, sizeof length);
    put(log, data, length);
    errno = saved;
}

/* Makes the call and, if it succeeds, runs `recorded` with the log; for the file or directory `path`. */
#define CALL(failed, path, call, recorded)                                                                             \
    if (!is_recorded(path))                                                                                            \
        return call;                                                                                                   \
    int log = lock();                                                                                                  \
    __typeof__(call) result = call;                                                                                    \
    if (result != failed) {                                                                                            \
        recorded;                                                                                                      \
    }                                                                                                                  \
    unlock(log);                                                                                                       \
    return result

/* Records the creation or truncation of a file. Replaying ignores the creation of a file that exists already. */
static void opened(int log, const char *path, int flags)
{
    if (flags & O_CREAT)
        record(log, CREATE, path, "", 0, "", 0);
    if (flags & O_TRUNC)
        record(log, SET_LENGTH, path, "", 0, "", 0);
}

int open(const char *path, int flags, ...)
{
    NEXT(open);
    MODE();
    CALL(-1, path, next(path, flags, mode), opened(log, path, flags));
}

int open64(const char *path, int flags, ...)
{
    NEXT(open64);
    MODE();
    CALL(-1, path, next(path, flags, mode), opened(log, path, flags));
}

int openat(int dir, const char *name, int flags, ...)
{
    NEXT(openat);
    MODE();
    char buffer[PATH_MAX];
    const char *path = path_at(dir, name, buffer);
    CALL(-1, path, next(dir, name, flags, mode), opened(log, path, flags));
}

int openat64(int dir, const char *name, int flags, ...)
{
    NEXT(openat64);
    MODE();
    char buffer[PATH_MAX];
    const char *path = path_at(dir, name, buffer);
    CALL(-1, path, next(dir, name, flags, mode), opened(log, path, flags));
}

/* The path of an open file. It is read again under the lock, because another call may rename the file meanwhile. */
#define PATH_OF(fd)                                                                                                    \
    char buffer[PATH_MAX];                                                                                             \
    int saved = errno;                                                                                                 \
    const char *path = path_at(fd, "", buffer);                                                                        \
    errno = saved

/* Makes a call on an open file. `recorded` may use its path and its result. */
#define CALL_FD(fd, call, recorded)                                                                                    \
    PATH_OF(fd);                                                                                                       \
    if (!is_recorded(path))                                                                                            \
        return call;                                                                                                   \
    int log = lock();                                                                                                  \
    path = path_at(fd, "", buffer);                                                                                    \
    __typeof__(call) result = call;                                                                                    \
    if (result >= 0 && path) {                                                                                         \
        recorded;                                                                                                      \
    }                                                                                                                  \
    unlock(log);                                                                                                       \
    return result

/* The offset of the last `bytes` bytes that were written, even for a file that is appended to. */
static uint64_t offset_before(int fd, ssize_t bytes)
{
    return syscall(SYS_lseek, fd, 0, SEEK_CUR) - bytes;
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    NEXT(write);
    CALL_FD(fd, next(fd, data, bytes), record(log, WRITE, path, "", offset_before(fd, result), data, result));
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t offset)
{
    NEXT(pwrite64);
    CALL_FD(fd, next(fd, data, bytes, offset), record(log, WRITE, path, "", offset, data, result));
}

static void record_parts(int log, const char *path, uint64_t offset, const struct iovec *parts, ssize_t bytes)
{
    for (; bytes > 0; parts++) {
        ssize_t length = (ssize_t)parts->iov_len < bytes ? (ssize_t)parts->iov_len : bytes;
        record(log, WRITE, path, "", offset, parts->iov_base, length);
        offset += length;
        bytes -= length;
    }
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    NEXT(writev);
    CALL_FD(fd, next(fd, parts, count), record_parts(log, path, offset_before(fd, result), parts, result));
}

int ftruncate64(int fd, off64_t length)
{
    NEXT(ftruncate64);
    CALL_FD(fd, next(fd, length), record(log, SET_LENGTH, path, "", length, "", 0));
}

int fsync(int fd)
{
    NEXT(fsync);
    CALL_FD(fd, next(fd), record(log, SYNC, path, "", 0, "", 0));
}

int fdatasync(int fd)
{
    NEXT(fdatasync);
    CALL_FD(fd, next(fd), record(log, SYNC, path, "", 0, "", 0));
}

int rename(const char *from, const char *to)
{
    NEXT(rename);
    CALL(-1, to, next(from, to), record(log, RENAME, from, to, 0, "", 0));
}

int unlink(const char *path)
{
    NEXT(unlink);
    CALL(-1, path, next(path), record(log, UNLINK, path, "", 0, "", 0));
}

int unlinkat(int dir, const char *name, int flags)
{
    NEXT(unlinkat);
    char buffer[PATH_MAX];
    const char *path = path_at(dir, name, buffer);
    enum kind kind = flags & AT_REMOVEDIR ? REMOVE_DIR : UNLINK;
    CALL(-1, path, next(dir, name, flags), record(log, kind, path, "", 0, "", 0));
}

int rmdir(const char *path)
{
    NEXT(rmdir);
    CALL(-1, path, next(path), record(log, REMOVE_DIR, path, "", 0, "", 0));
}

int mkdir(const char *path, mode_t mode)
{
    NEXT(mkdir);
    CALL(-1, path, next(path, mode), record(log, MAKE_DIR, path, "", 0, "", 0));
}
