cpdef dict of_pairs(object pairs)
cpdef object union(object some, object others)
cpdef dict difference(object some, object others)
cpdef bint includes(object some, object others) except -1
