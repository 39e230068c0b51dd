"""What passes between processors and request handlers. Skeleton: the network floor completes it.

A `Request` is one frame of one connection. The handler (`Dispatcher.handle`) returns an `Answer`:
* bytes, or a list of parts (bytes, memoryview, FileRegion): the whole response without the 4-byte length, sent in request order;
* a `Pending`: a later event completes it (acks=all, long poll, join group, admin work);
* `NO_RESPONSE`: Produce with acks=0;
* `CLOSE`: the connection is closed, as Apache Kafka closes it (unsupported version, malformed request, acks=0 that failed).
`Request.frame` is a writable memoryview of the receive buffer and is valid only until the handler returns; what must wait copies first.
"""
