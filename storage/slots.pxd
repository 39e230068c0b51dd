# The slots of our own objects, read where they lie: what asking for an attribute finds, without the search. A type is asked once, at import,
# where a slot of it is; whoever reads one has made sure of the type.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t


cdef extern from *:
    """
    #include <structmember.h>

    /* Where the objects of a type hold what this member descriptor of it gives; 0 of any other descriptor. */
    static Py_ssize_t offset_of_slot(PyObject *descriptor) {
        PyMemberDef *member;
        if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type))
            return 0;
        member = ((PyMemberDescrObject *)descriptor)->d_member;
        return member->type == T_OBJECT_EX ? member->offset : 0;
    }

    static inline PyObject *slot_at(PyObject *of, Py_ssize_t offset) {
        return *(PyObject **)((char *)of + offset);
    }

    /* A number that is too large for anything to be larger stays so. */
    static inline long long number_of(PyObject *number) {
        int overflow;
        long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
        return overflow ? (overflow > 0 ? LLONG_MAX : LLONG_MIN) : value;
    }

    static inline void set_slot(PyObject *of, Py_ssize_t offset, PyObject *value) {
        PyObject **at = (PyObject **)((char *)of + offset);
        PyObject *before = *at;
        Py_INCREF(value);
        *at = value;
        Py_XDECREF(before);
    }
    """
    Py_ssize_t offset_of_slot(object descriptor)
    PyObject *slot_at(object of, Py_ssize_t offset)
    void set_slot(object of, Py_ssize_t offset, object value)
    int64_t number_of(object number) except? -1


cdef inline Py_ssize_t slot_of_type(type owner, str name) except 0:
    # Raises ImportError where there is no such slot.
    cdef Py_ssize_t offset = offset_of_slot(getattr(owner, name))
    if not offset:
        raise ImportError(f"{owner.__name__}.{name} is no slot")
    return offset


cdef inline object slot(object of, Py_ssize_t offset):
    cdef PyObject *value = slot_at(of, offset)
    if value is NULL:
        raise AttributeError("an empty slot")
    return <object>value


cdef inline int64_t number(object of, Py_ssize_t offset) except? -1:
    return number_of(slot(of, offset))
