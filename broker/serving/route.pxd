from libc.stdint cimport int64_t

cdef class Route:
    cdef public object api_key, encode, encode_in_slices, frame_handler, handler, request_class, response_class
    cdef public bint flexible_request_header, has_client_id, has_error_code, has_throttle_time, is_between_brokers, is_exempt, waits_for_store
    cdef public int64_t requests, sample_at, version
