cimport cython
from libc.stdint cimport int64_t
from ottla.protocol.cursors cimport fields
from ottla.protocol.cursors.fields cimport View
from ottla.storage.validation.rules cimport ValidationRules
from ottla.storage.validation.run cimport BatchRun

cdef int64_t CODEC_MASK, CONTROL_MASK, CURRENT_MAGIC, HEADER_SIZE, NO_TIMESTAMP, TIMESTAMP_TYPE_MASK, TRANSACTIONAL_MASK
cdef int64_t FIRST_VERSION_WITH_ZSTD, FIRST_VERSION_WITHOUT_MESSAGE_SETS, GZIP, INLINE_CHECK_MAX_BYTES, INLINE_CHECK_MAX_RECORDS, LAST_CODEC, LZ4, MIN_RECORD_BYTES, NO_MAGIC
cdef int64_t SMALLEST_TIMESTAMP, UNCOMPRESSED, WALK_MAX_RECORDS, ZSTD

cpdef void read_only_batch(BatchRun run, int64_t api_version) except *
cpdef void read_other_records(BatchRun run, int64_t api_version) except *
@cython.locals(size=int64_t, attributes=int64_t, codec=int64_t, count=int64_t, max_timestamp=int64_t, takes_log_append_time=bint, look_inside=bint)
cpdef void judge(BatchRun run, ValidationRules rules, int64_t now_ms, bint from_client) except *
cpdef void check_zstd(int64_t codec, ValidationRules rules) except *
@cython.locals(count=int64_t, last_delta=int64_t)
cpdef void check_client_header(BatchRun run, ValidationRules rules) except *
cpdef void check_fits_old_format(BatchRun run, ValidationRules rules) except *
cpdef void check_fits_segment(int64_t size, int64_t segment_bytes, ValidationRules rules) except *
@cython.locals(found=int64_t)
cpdef bint begins_as(int64_t codec, BatchRun run) except -1
cpdef void look_at_records(BatchRun run, ValidationRules rules, int64_t now_ms, int64_t max_timestamp) except *
@cython.locals(data=View, at=Py_ssize_t, end=Py_ssize_t, after_delta=Py_ssize_t, latest=int64_t, zigzag=int64_t, length=int64_t, delta=int64_t)
cpdef int64_t walk_lengths(BatchRun run, object topic_partition) except? -3
