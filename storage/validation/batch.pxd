cimport cython
from libc.stdint cimport int64_t
from ottla.protocol.records.walk cimport RecordCheck
from ottla.storage.validation.rules cimport ValidationRules
from ottla.storage.validation.run cimport BatchRun

cdef int64_t CODEC_MASK, CONTROL_MASK, CURRENT_MAGIC, HEADER_SIZE, TIMESTAMP_TYPE_MASK, TRANSACTIONAL_MASK
cdef int64_t FIRST_VERSION_WITH_ZSTD, FIRST_VERSION_WITHOUT_MESSAGE_SETS, INLINE_CHECK_MAX_BYTES, INLINE_CHECK_MAX_RECORDS
cdef int64_t INLINE_EXPANDED_MAX_BYTES, INLINE_SUSPECT_MAX_RECORDS, LAST_CODEC, NO_MAGIC, UNCOMPRESSED, ZSTD

cpdef void read_only_batch(BatchRun run, int64_t api_version) except *
cpdef void read_other_records(BatchRun run, int64_t api_version) except *
@cython.locals(size=int64_t, attributes=int64_t, codec=int64_t)
cpdef void judge(BatchRun run, ValidationRules rules, int64_t now_ms, bint from_client) except *
cpdef void check_zstd(int64_t codec, ValidationRules rules) except *
@cython.locals(count=int64_t, last_delta=int64_t)
cpdef void check_client_header(BatchRun run, ValidationRules rules) except *
cpdef void check_fits_old_format(BatchRun run, ValidationRules rules) except *
cpdef void check_fits_segment(int64_t size, int64_t segment_bytes, ValidationRules rules) except *
@cython.locals(check=RecordCheck, at=Py_ssize_t, end=Py_ssize_t)
cpdef void look_at_records(BatchRun run, ValidationRules rules, int64_t now_ms) except *
@cython.locals(check=RecordCheck, codec=int64_t)
cpdef void look_at_compressed(BatchRun run, ValidationRules rules, int64_t now_ms) except *
@cython.locals(end=Py_ssize_t)
cpdef bint are_good_records(RecordCheck check, object data) except -1
@cython.locals(check=RecordCheck, latest=int64_t, earliest=int64_t, is_suspect=bint)
cpdef void accept_checked(BatchRun run, ValidationRules rules, int64_t now_ms) except *
