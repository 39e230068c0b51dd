from libc.stdint cimport int64_t

cpdef bint has_no_news(object group, object member, int64_t epoch, str instance_id, str client_id, str client_host, object topics) except -1
