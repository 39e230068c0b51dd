cdef object _refused(object error)
cdef object _response(object result)
