cimport cython
from libc.stdint cimport int64_t
from ottla.storage.validation.batch cimport check_fits_segment
from ottla.storage.validation.rules cimport ValidationRules
from ottla.storage.validation.run cimport BatchRun

cdef int64_t CONTROL_MASK, CURRENT_MAGIC, LARGEST_OFFSET, MARKER_WORK, MESSAGE_WORK, MOST_WORK

@cython.locals(at=Py_ssize_t, last_offset=int64_t, work=int64_t)
cpdef Py_ssize_t judge_replicated(BatchRun run, ValidationRules rules, int64_t leader_epoch, object latest_epoch, int64_t segment_bytes) except -1
cdef void warn_of_later_epoch(BatchRun run, ValidationRules rules, int64_t leader_epoch) except *
