from libc.stdint cimport int64_t
from broker.handlers.data.fetch_reading cimport Fetch
from protocol.cursors.fetch cimport FetchReader

cdef int64_t ANSWERED, PARTITIONS_PER_STEP
