# cython: language_level=3
"""Reads what is in the page cache, without letting another thread run: the system call takes a fraction of what that does."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t

from ottla.storage.cached_read cimport read_cached as read_without_waiting


def read_cached(int file, Py_ssize_t length, int64_t at):
    """`length` bytes of a file from position `at`; None when they are not all there, or would have to be waited for."""
    cdef bytes data
    if length < 0:
        return None
    data = PyBytes_FromStringAndSize(NULL, length)
    return data if read_without_waiting(file, PyBytes_AS_STRING(data), <size_t>length, at) == length else None
