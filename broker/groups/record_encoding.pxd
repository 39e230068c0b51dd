cimport cython
from libc.stdint cimport int64_t
from ottla.broker.coordination cimport topic_log

@cython.locals(delta=int64_t, start=bytes, value=bytes, values=dict)
cpdef tuple encode_commits(str group_id, object commit)
