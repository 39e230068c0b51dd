# A read of a file that does not wait for the disk.

from posix.types cimport off_t


cdef extern from * nogil:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <errno.h>
    #include <sys/uio.h>
    #include <unistd.h>

    /* As pread; -1 with EAGAIN when the bytes are not in the page cache. A file system that cannot tell is waited for. */
    static ssize_t read_cached(int file, void *into, size_t length, off_t at) {
    #ifdef RWF_NOWAIT
        struct iovec vector = {into, length};
        ssize_t count = preadv2(file, &vector, 1, at, RWF_NOWAIT);
        if (count >= 0 || (errno != EOPNOTSUPP && errno != EINVAL))
            return count;
    #endif
        return pread(file, into, length, at);
    }
    """
    ssize_t read_cached(int file, void *into, size_t length, off_t at)
