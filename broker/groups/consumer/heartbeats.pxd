cpdef object on_heartbeat(object group, object beat, object context)
cdef bint _has_no_news(object group, object member, object beat, object context) except -1
