from libc.stdint cimport int64_t
from ottla.broker.network.answer_writer cimport AnswerWriter
from ottla.broker.network.frame_reader cimport FrameReader
from ottla.broker.network.handler cimport RequestHandler
from ottla.broker.network.processor cimport Processor
from ottla.broker.network.request_channel cimport Pending, Request, RequestChannel
from ottla.broker.quotas.throttle cimport Throttle
from ottla.broker.security.access cimport Access
from ottla.broker.security.client cimport Client
from ottla.protocol.cursors cimport fields
cimport cython

cdef int64_t APPENDED, CLOSED, CLOSING, DRAINING, MUTED, PAUSED, QUEUED, SENDING, STARVED, WAITING, YIELDED
cdef double INFINITE
cdef int64_t CONTROLLER_MUTATION
cdef int64_t ANSWER_WEIGHT, MAX_APPENDED, TURN_BYTES
cdef int64_t _SHORT
cdef list _SHORT_PREFIXES

cdef class Connection:
    cdef public RequestHandler handler
    cdef readonly Client client
    cdef readonly Access access
    cdef public int64_t last_active_ns, received_ns
    cdef readonly int64_t max_request_bytes
    cdef readonly FrameReader _reader
    cdef readonly AnswerWriter _writer
    cdef readonly object _waiting
    cdef Processor _processor
    cdef Request _request
    cdef object _muted
    cdef Throttle _throttle
    cdef int64_t _state
    cdef bint _paused

    @cython.locals(processor=Processor, channel=RequestChannel, reader=FrameReader, now_ns=int64_t)
    cpdef void buffer_updated(self, Py_ssize_t nbytes) except *
    cpdef object get_buffer(self, object sizehint)
    @cython.locals(reader=FrameReader)
    cdef void _leave_for_next_turn(self, Py_ssize_t nbytes) except *
    @cython.locals(reader=FrameReader)
    cdef void _process(self, bint admitted) except *
    @cython.locals(processor=Processor, channel=RequestChannel, position=Py_ssize_t, begin=Py_ssize_t, after=Py_ssize_t, end=Py_ssize_t,
                   size=int64_t, gathered=int64_t, state=int64_t, out=list)
    cdef Py_ssize_t _handle_frames(self, FrameReader reader, bint admitted) except -1
    cdef bint _may_follow_appends(self, object view, Py_ssize_t begin, Py_ssize_t after) except -1
    cdef void _keep_or_wait(self, Py_ssize_t position) except *
    cdef void _pause(self) except *
    cdef void _refuse(self, int64_t size, object head) except *
    cdef Py_ssize_t _on_answer(self, object answer, list out) except -1
    @cython.locals(processor=Processor)
    cdef void _wait_for(self, Pending pending) except *
    cpdef void on_answer_ready(self) except *
    cpdef void run_queued(self) except *
    cpdef void run(self) except *
    cdef void _send_waiting(self, object waiting) except *
    cdef void _resume(self, bint admitted) except *
    cdef Py_ssize_t _append_answer(self, object answer, list out) except -1
    cdef void _write(self, list out) except *
    cpdef void send_unsent(self) except *
    @cython.locals(processor=Processor, time_ms=int64_t)
    cpdef int64_t throttle(self, int64_t quota, int64_t amount) except -1
    @cython.locals(processor=Processor)
    cpdef void count_more(self, int64_t quota, int64_t amount) except *
    @cython.locals(processor=Processor)
    cpdef void exempt(self) except *
    cpdef int64_t throttle_mutations(self, object quota) except -1
    @cython.locals(processor=Processor)
    cpdef void begin_work(self) except *
    @cython.locals(processor=Processor)
    cpdef void end_work(self) except *
    cpdef void add_work(self, int64_t work_ns) except *
    cpdef void touch(self) except *
