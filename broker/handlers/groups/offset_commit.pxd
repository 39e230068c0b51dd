from libc.stdint cimport int64_t
from ottla.protocol.cursors.offset_commit cimport OffsetCommitAnswer, OffsetCommitReader, TxnOffsetCommitReader

cdef int64_t DEFAULT_TIMESTAMP, DEFAULT_RETENTION_MS, AT_ONCE, TXN_OFFSET_COMMIT, FIRST_TXN_THAT_KNOWS_LOADING, FIRST_TXN_THAT_KNOWS_ABORTABLE, END, NO_EXPIRY, PARTITION

cdef class OffsetCommit:
    cdef OffsetCommitAnswer _answer
    cdef OffsetCommitReader _reader
    cdef object _code, _connection, _known, _pending, _refusal, _services, _too_large, _topic_error
    cdef dict _commits, _decided, _for_store, _values
    cdef list _store_answers
    cdef str _topic
    cdef bytes _topic_bytes
    cdef int64_t _errors, _expire_timestamp, _now_ms
    cdef readonly bint is_for_store

    cpdef bint read(self, int64_t limit) except -1
    cpdef void answer(self, object pending) except *
    cdef void _begin_topic(self, bytes topic) except *
    cdef void _take(self, OffsetCommitReader reader) except *
    cdef void _complete(self) except *
    cdef void _count(self, int64_t code, int64_t times) except *

cdef object _refusal(OffsetCommitReader reader, object access)
cdef object _transaction(OffsetCommitReader reader)
