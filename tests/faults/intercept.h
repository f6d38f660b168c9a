/* Shared by the libraries that are loaded into the binary with LD_PRELOAD. Include it first: it defines _GNU_SOURCE. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* Whether `path` is one of `dirs`, which are separated by ':', or below one. */
static int is_below(const char *path, const char *dirs)
{
    while (dirs && *dirs) {
        size_t length = strcspn(dirs, ":");
        if (strncmp(path, dirs, length) == 0 && (path[length] == '/' || path[length] == 0))
            return 1;
        dirs += length + (dirs[length] == ':');
    }
    return 0;
}

/* The path of `name` in the open directory `dir`, or of the descriptor itself when `name` is empty. */
static const char *path_at(int dir, const char *name, char *buffer)
{
    if (!name || dir == AT_FDCWD || name[0] == '/')
        return name;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, buffer, PATH_MAX - 1);
    if (length < 0)
        return NULL;
    buffer[length] = 0;
    if (*name && length + strlen(name) + 2 < PATH_MAX) {
        buffer[length] = '/';
        strcpy(buffer + length + 1, name);
    }
    return buffer;
}

/* Declares `next`, the intercepted function. */
#define NEXT(name)                                                                                                     \
    static __typeof__(&name) next;                                                                                     \
    if (!next)                                                                                                         \
        next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

/* The mode argument of a function that opens a file. */
#define MODE()                                                                                                         \
    mode_t mode = 0;                                                                                                   \
    if (flags & (O_CREAT | __O_TMPFILE)) {                                                                             \
        va_list arguments;                                                                                             \
        va_start(arguments, flags);                                                                                    \
        mode = va_arg(arguments, mode_t);                                                                              \
        va_end(arguments);                                                                                             \
    }
