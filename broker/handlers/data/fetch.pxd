from libc.stdint cimport int64_t
from ottla.broker.handlers.data.fetch_reading cimport Fetch
from ottla.protocol.cursors.fetch cimport FetchReader

cdef int64_t ANSWERED, PARTITIONS_PER_STEP
