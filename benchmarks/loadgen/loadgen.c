/* Load generator: one thread, epoll, prepared request frames.
 *
 * Reads whole request frames (4-byte length, api key, version, correlation id, ...) from a file, opens connections, keeps a number of
 * requests in flight on each (closed loop) or sends at a fixed rate whatever the answers do (open loop), and prints lines of JSON:
 *   {"event":"measuring"}   when the warm-up is over
 *   {"event":"interval",..} with --interval: what was answered since the last such line, inside the window; on an open loop "gap_ns" is the
 *                           longest time in which the generator itself did not run
 *   {"event":"done",...}    counts, window, latency buckets; "answered" is all that came between the two lines, also what does not count
 *
 * The file is a sequence of 32-bit big-endian words with frames between them (benchmarks/loadgen/prepared.py writes it):
 *   number of frames, then of each frame: its length; flags (NO_ANSWER, SHOWN); the least length of a good answer; where in its answer four
 *   bytes stand that the connection's later frames send, or 0; the number of error codes in its answer, and where each stands; the number
 *   of its patches, and each of them (read_patch); then its bytes, with their length prefix
 *   number of frames that are dealt before anything else, and the index of each; number of frames that are dealt, and the index of each
 * Places in answers are counted from the correlation id. Error codes have 16 bits and must be zero. An answer's length and correlation id
 * are parsed, its error codes and the least length are checked; the first answer to every frame with the flag SHOWN is written to the file
 * --answers, behind the index of the frame, for somebody who can decode it. The window does not begin before these have come.
 *
 * Both sequences are dealt round robin: with C connections, connection i sends the frames i, i+C, i+2C, ... of it. Those dealt before
 * anything else are sent once, each frame after the answer to the one before it, when the connections are opened: a fetch session begins so.
 * All others are sent over and over.
 *
 * Frames are shared; the twelve bytes with the correlation id are copied per request, the rest is sent from where it lies (writev). A patch
 * writes a number into its frame just before the frame is sent: what was taken from an answer, or a counter that then moves on, such as the
 * epoch of a session or the sequence number of a producer. The CRC-32C over such a number is mended: it is linear, so that every bit of the
 * number changes it by a word that depends on nothing but its place. A frame with patches must belong to one connection alone.
 *
 * A frame with the flag NO_ANSWER (acks=0) counts as answered once the kernel has it and all before it are answered; it has no latency.
 *
 * On a closed loop with --lead no connection is more than so many requests ahead of the slowest, which keeps the shares of different frames
 * equal. On an open loop the connections take turns: one request of each, then the next of each. That is also how thousands of connections
 * are made to be active in turn.
 *
 * Latency runs from just before the request is handed to the kernel (closed loop) or from the moment it was meant to be sent (open loop:
 * a broker that stalls makes the requests behind the stall late too) until its response has arrived completely.
 * benchmarks/histogram.py knows the bucket scheme; keep both equal.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
    HEAD = 12,              /* length, api key, version, correlation id: what is copied per request */
    SUB_BITS = 7,           /* 128 buckets per power of two: below 0.8 % error */
    BUCKETS = (64 - SUB_BITS) << SUB_BITS,
    MAX_CONNECTIONS = 32768,
    MAX_IN_FLIGHT = 4096,   /* a power of two: the longest ring of requests waiting for their response */
    RING_SLOTS = 131072,    /* a power of two: of all rings together on an open loop, so that many connections have short ones */
    MIN_RING = 8,
    TOGETHER = 25,          /* connections opened before the last of them must have been accepted */
    MAX_IOV = 64,
    PEEK = 256,             /* the least of a response that is kept to look at, all checked places apart */
    RECEIVE = 256 * 1024,
    CRC_BITS = 32,
};

enum { NO_ANSWER = 1, SHOWN = 2 };           /* flags of a frame */
enum { TAKEN = -1 };                         /* in place of a counter: what the connection took from an answer */

static const uint64_t PATIENCE_NS = 30000000000ull; /* how long answers may still come after the window, and before it those to be shown */

struct patch {
    uint32_t at;                         /* where the number stands in the frame */
    int32_t counter;
    uint32_t step;
    uint32_t crc_at, crc;                /* where the CRC-32C over it stands, 0 for none; the CRC while the number is 0 */
    uint32_t bits[CRC_BITS];             /* by what each bit of the number changes it, the lowest first */
};

struct frame {
    uint8_t *bytes;
    uint32_t length, flags, least, takes, checks, patches;
    uint32_t *check;
    struct patch *patch;
    uint64_t gathered;                   /* the number of the writev() that last had it */
    int owner;                           /* the connection that sends it, if it has patches; -1 for none yet */
};

struct request { uint64_t start_ns; struct frame *frame; int is_patched; uint8_t head[HEAD]; };

struct connection {
    int fd;
    uint32_t interest;                   /* what epoll was asked for */
    uint32_t next;                       /* index of the next frame to send among those that are dealt */
    uint32_t taken;                      /* what was taken from an answer */
    uint64_t queued, written, answered;  /* requests: put into the ring, handed to the kernel completely, answered */
    uint32_t offset;                     /* bytes of request `written` the kernel has already */
    struct request *ring;                /* requests `answered` to `queued` */
    uint8_t *peek;                       /* the first bytes of the response that is arriving, length included */
    uint32_t room;                       /* how many of them are kept; the whole response, if it is shown */
    uint32_t have;                       /* how many bytes of it have arrived, length included */
    uint32_t want;                       /* its whole length, length included; 0 until known */
};

static struct {
    const char *host, *frames_path, *answers_path;
    int port, connections, in_flight, discard, rests;
    double warm_up_s, duration_s, rate, interval_s;
    uint64_t total, max_bytes, lead;
} option = {.host = "127.0.0.1", .connections = 1, .in_flight = 1, .duration_s = 1};

struct deal { struct frame **frame; uint32_t count; };

static struct frame *frames;
static struct deal opening, dealt;       /* what is sent before anything else, and over and over */
static uint32_t *counter;
static uint32_t counters;
static uint32_t peek_bytes = PEEK;
static FILE *answers;                    /* where shown answers go */
static uint32_t to_show;                 /* frames whose first answer has not come yet */
static struct connection *connections;
static int epoll_fd;
static uint64_t gathering;               /* the number of the writev() that is being prepared */
static uint64_t slowest;                 /* requests that the connection with the fewest has answered */
static uint32_t ring_mask;               /* slots of a ring, less one */
static uint64_t due;                     /* open loop: requests that were meant to be sent until now */
static uint8_t receive_buffer[RECEIVE];

static uint64_t bucket[BUCKETS], reported[BUCKETS], reported_max_ns, reported_gap_ns;
static uint64_t responses, errors, bytes_sent, sent_before_window, bytes_received, max_ns, answered_in_all, answered_before_window;
static int first_error;
static int measuring;
static uint64_t began_ns, window_ns, window_end_ns;

static void fail(const char *what) {
    fprintf(stderr, "loadgen: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(2);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static uint32_t bucket_of(uint64_t ns) {
    if (ns < (1u << SUB_BITS)) return (uint32_t)ns;
    int shift = 63 - __builtin_clzll(ns) - SUB_BITS;
    return (uint32_t)(((uint64_t)shift << SUB_BITS) + (ns >> shift));
}

static uint32_t be32(const uint8_t *p) { return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]; }

static void put32(uint8_t *p, uint32_t value) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(value >> (24 - 8 * i));
}

static void *room_for(size_t count, size_t size) {
    void *found = calloc(count ? count : 1, size);
    if (!found) fail("memory");
    return found;
}

static uint32_t read_word(FILE *file) {
    uint8_t bytes[4];
    errno = 0;
    if (fread(bytes, 1, 4, file) != 4) fail("the file of frames is cut short");
    return be32(bytes);
}

static uint32_t read_count(FILE *file) {
    uint32_t count = read_word(file);
    errno = 0;
    if (count > 1u << 24) fail("an impossible count in the file of frames");
    return count;
}

/* Where the number stands, which counter, its first value, its step, where the CRC stands, the CRC and its words if it stands anywhere. */
static void read_patch(FILE *file, struct patch *patch, uint32_t frame_length) {
    patch->at = read_word(file);
    patch->counter = (int32_t)read_word(file);
    uint32_t first = read_word(file);
    patch->step = read_word(file);
    patch->crc_at = read_word(file);
    errno = 0;
    if (patch->at < HEAD || patch->at > frame_length - 4 || patch->crc_at > frame_length - 4) fail("a patch lies outside of its frame");
    if (patch->crc_at) {
        patch->crc = read_word(file);
        for (int i = 0; i < CRC_BITS; i++) patch->bits[i] = read_word(file);
    }
    if (patch->counter == TAKEN) return;
    if (patch->counter < 0 || patch->counter > 1 << 24) fail("an impossible counter");
    uint32_t needed = (uint32_t)patch->counter + 1;
    if (needed > counters) {
        if (!(counter = realloc(counter, sizeof *counter * needed))) fail("memory");
        memset(counter + counters, 0, sizeof *counter * (needed - counters));
        counters = needed;
    }
    counter[patch->counter] = first;
}

static void read_frame(FILE *file, struct frame *frame) {
    frame->length = read_word(file);
    errno = 0;
    if (frame->length < HEAD || frame->length > 1u << 30) fail("a frame is shorter than its header or longer than 1 GiB");
    frame->owner = -1;
    frame->flags = read_word(file);
    to_show += frame->flags & SHOWN ? 1 : 0;
    frame->least = read_word(file);
    frame->takes = read_word(file);
    frame->checks = read_count(file);
    frame->check = room_for(frame->checks, sizeof *frame->check);
    for (uint32_t i = 0; i < frame->checks; i++) {
        frame->check[i] = read_word(file);
        if (frame->check[i] < 4 || frame->check[i] > 1u << 20) fail("an error code stands behind the correlation id, in the first MiB");
        if (4 + frame->check[i] + 2 > peek_bytes) peek_bytes = 4 + frame->check[i] + 2;
    }
    frame->patches = read_count(file);
    frame->patch = room_for(frame->patches, sizeof *frame->patch);
    for (uint32_t i = 0; i < frame->patches; i++) read_patch(file, &frame->patch[i], frame->length);
    frame->bytes = room_for(frame->length, 1);
    if (fread(frame->bytes, 1, frame->length, file) != frame->length) fail("the last frame is cut short");
    if (be32(frame->bytes) != frame->length - 4) fail("a frame is longer or shorter than its length says");
}

static void read_deal(FILE *file, struct deal *deal, uint32_t frame_count) {
    deal->count = read_count(file);
    deal->frame = room_for(deal->count, sizeof *deal->frame);
    for (uint32_t i = 0; i < deal->count; i++) {
        uint32_t index = read_word(file);
        if (index >= frame_count) fail("a frame is dealt that is not there");
        deal->frame[i] = &frames[index];
    }
}

/* With patches a frame may be sent by one connection only, or two would write into it at once. */
static void check_owners(const struct deal *deal) {
    uint32_t all = (uint32_t)option.connections;
    errno = 0;
    for (uint32_t i = 0; i < deal->count; i++) {
        struct frame *frame = deal->frame[i];
        if (!frame->patches) continue;
        if (deal->count % all) fail("where frames have patches, every connection must be dealt as many");
        if (frame->owner >= 0 && frame->owner != (int)(i % all)) fail("a frame with patches is dealt to two connections");
        frame->owner = (int)(i % all);
    }
}

/* On a closed loop a connection waits for an answer, so that it must be sent something that is answered. */
static void check_answered(void) {
    uint32_t all = (uint32_t)option.connections;
    errno = 0;
    for (uint32_t i = 0; i < all; i++) {
        uint32_t at = i % dealt.count, first = at;
        while (dealt.frame[at]->flags & NO_ANSWER) {
            at = (uint32_t)(((uint64_t)at + all) % dealt.count);
            if (at == first) fail("a connection is sent nothing that is answered");
        }
    }
}

static void read_frames(void) {
    FILE *file = strcmp(option.frames_path, "-") ? fopen(option.frames_path, "rb") : stdin;
    if (!file) fail(option.frames_path);
    uint32_t frame_count = read_count(file);
    frames = room_for(frame_count, sizeof *frames);
    for (uint32_t i = 0; i < frame_count; i++) read_frame(file, &frames[i]);
    read_deal(file, &opening, frame_count);
    read_deal(file, &dealt, frame_count);
    errno = 0;
    if (!dealt.count) fail("no frames");
    check_owners(&opening);
    check_owners(&dealt);
    check_answered();
}

static void want_events(struct connection *c, uint32_t interest) {
    if (c->interest == interest) return;
    struct epoll_event event = {.events = interest, .data.ptr = c};
    if (epoll_ctl(epoll_fd, c->interest ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, c->fd, &event)) fail("epoll_ctl");
    c->interest = interest;
}

static uint32_t ring_slots(void) {
    uint32_t slots = MIN_RING, wanted = option.rate > 0 ? RING_SLOTS / (uint32_t)option.connections : (uint32_t)option.in_flight;
    while (slots < wanted && slots < MAX_IN_FLIGHT) slots *= 2;
    return slots;
}

/* Ask for the versions on a connection that still blocks, and read the answer. What is opened before this has then been accepted too: half of
 * the default socket.listen.backlog.size at once, or the kernel would drop the rest and try again a second later. */
static void wait_until_accepted(int fd) {
    static const uint8_t api_versions[] = {0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    uint8_t prefix[4];
    errno = 0;
    if (send(fd, api_versions, sizeof api_versions, MSG_NOSIGNAL) != sizeof api_versions) fail("ask for the versions");
    if (recv(fd, prefix, 4, MSG_WAITALL) != 4 || be32(prefix) > RECEIVE) fail("no answer to ApiVersions");
    if (recv(fd, receive_buffer, be32(prefix), MSG_WAITALL) != (ssize_t)be32(prefix)) fail("no answer to ApiVersions");
}

/* The first of its error codes that is not zero, -2 for an answer that is too short for them, -3 for one that is shorter than a good one. */
static int error_in(const struct frame *frame, const uint8_t *answer, uint32_t length) {
    for (uint32_t i = 0; i < frame->checks; i++) {
        uint32_t at = 4 + frame->check[i];
        if (at + 2 > length) return -2;
        int code = (int16_t)(answer[at] << 8 | answer[at + 1]);
        if (code) return code;
    }
    return length < frame->least ? -3 : 0;
}

static void show(struct frame *frame, const uint8_t *answer, uint32_t length) {
    uint8_t index[4];
    put32(index, (uint32_t)(frame - frames));
    errno = 0;
    if (fwrite(index, 1, 4, answers) != 4 || fwrite(answer, 1, length, answers) != length || fflush(answers)) fail(option.answers_path);
    frame->flags &= ~(uint32_t)SHOWN;
    to_show--;
}

/* Write the numbers of a frame, just before it is sent. Counters stay in the range of positive 32-bit integers. */
static void apply_patches(struct connection *c, struct frame *frame) {
    for (uint32_t i = 0; i < frame->patches; i++) {
        struct patch *patch = &frame->patch[i];
        uint32_t number = patch->counter == TAKEN ? c->taken : counter[patch->counter];
        if (patch->counter != TAKEN) counter[patch->counter] = (number + patch->step) & 0x7fffffff;
        put32(frame->bytes + patch->at, number);
        if (!patch->crc_at) continue;
        uint32_t crc = patch->crc;
        for (int bit = 0; bit < CRC_BITS; bit++) crc ^= patch->bits[bit] & -(number >> bit & 1);
        put32(frame->bytes + patch->crc_at, crc);
    }
}

/* Send the frames that come before all others on a connection that still blocks, one after the answer to the other. */
static void open_with(struct connection *c, uint32_t index) {
    for (uint32_t i = index; i < opening.count; i += (uint32_t)option.connections) {
        struct frame *frame = opening.frame[i];
        uint8_t prefix[4];
        apply_patches(c, frame);
        errno = 0;
        for (uint32_t sent = 0; sent < frame->length;) {
            ssize_t more = send(c->fd, frame->bytes + sent, frame->length - sent, MSG_NOSIGNAL);
            if (more <= 0) fail("send what opens a connection");
            sent += (uint32_t)more;
        }
        if (recv(c->fd, prefix, 4, MSG_WAITALL) != 4 || be32(prefix) > 1u << 30) fail("no answer to what opens a connection");
        uint32_t length = 4 + be32(prefix);
        uint8_t *answer = room_for(length, 1);
        memcpy(answer, prefix, 4);
        if (recv(c->fd, answer + 4, length - 4, MSG_WAITALL) != (ssize_t)length - 4) fail("no answer to what opens a connection");
        int code = error_in(frame, answer, length);
        if (code && !errors++) first_error = code;
        if (frame->takes && 4 + frame->takes + 4 <= length) c->taken = be32(answer + 4 + frame->takes);
        if (frame->flags & SHOWN) show(frame, answer, length);
        free(answer);
    }
}

static void open_connections(void) {
    ring_mask = ring_slots() - 1;
    connections = calloc((size_t)option.connections, sizeof *connections);
    epoll_fd = epoll_create1(0);
    if (!connections || epoll_fd < 0) fail("start");
    for (int i = 0; i < option.connections; i++) {
        struct connection *c = &connections[i];
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)option.port)};
        int one = 1;
        if (inet_pton(AF_INET, option.host, &address.sin_addr) != 1) fail("the host must be an IPv4 address");
        if ((c->fd = socket(AF_INET, SOCK_STREAM, 0)) < 0) fail("socket");
        if (connect(c->fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (i % TOGETHER == TOGETHER - 1) wait_until_accepted(c->fd);
        open_with(c, (uint32_t)i);
        if (fcntl(c->fd, F_SETFL, O_NONBLOCK)) fail("fcntl");
        c->next = (uint32_t)i % dealt.count;
        c->ring = room_for(ring_mask + 1, sizeof *c->ring);
        c->peek = room_for(c->room = peek_bytes, 1);
        want_events(c, EPOLLIN);
    }
}

/* Put one request into the ring; flush() sends it. */
static void queue_request(struct connection *c, uint64_t start_ns) {
    struct request *request = &c->ring[c->queued & ring_mask];
    request->frame = dealt.frame[c->next];
    request->is_patched = 0;
    memcpy(request->head, request->frame->bytes, HEAD - 4);
    put32(request->head + HEAD - 4, (uint32_t)c->queued & 0x7fffffff);
    request->start_ns = start_ns;
    c->next = (uint32_t)(((uint64_t)c->next + (uint32_t)option.connections) % dealt.count);
    c->queued++;
}

/* Open loop: what was meant to be sent inside the window counts, also when it is answered after it. */
static int counts(uint64_t start_ns) {
    return option.rate > 0 ? start_ns >= window_ns && start_ns < window_end_ns && window_ns : measuring;
}

/* A request without an answer is over when the kernel has it and all before it are over. */
static void pass_unanswered(struct connection *c) {
    for (; c->answered < c->written && c->ring[c->answered & ring_mask].frame->flags & NO_ANSWER; c->answered++) {
        answered_in_all++;
        responses += (uint64_t)counts(c->ring[c->answered & ring_mask].start_ns);
    }
}

/* The queued requests as far as one writev() takes them. A frame with patches is in it once at most: they are written into it. */
static int gather(struct connection *c, struct iovec *iov) {
    int n = 0;
    uint32_t skip = c->offset;
    gathering++;
    for (uint64_t r = c->written; r < c->queued && n + 2 <= MAX_IOV; r++, skip = 0) {
        struct request *request = &c->ring[r & ring_mask];
        struct frame *frame = request->frame;
        if (frame->patches) {
            if (frame->gathered == gathering) break;
            frame->gathered = gathering;
            if (!request->is_patched) apply_patches(c, frame);
            request->is_patched = 1;
        }
        uint32_t body = skip > HEAD ? skip : HEAD;
        if (skip < HEAD) iov[n++] = (struct iovec){request->head + skip, HEAD - skip};
        if (body < frame->length) iov[n++] = (struct iovec){frame->bytes + body, frame->length - body};
    }
    return n;
}

/* Hand as much as the kernel takes of the queued requests to it. */
static void flush(struct connection *c) {
    struct iovec iov[MAX_IOV];
    while (c->written < c->queued) {
        ssize_t sent = writev(c->fd, iov, gather(c, iov));
        if (sent < 0) {
            if (errno == EINTR) continue;
            if (errno != EAGAIN) fail("the broker closed the connection while a request was sent");
            want_events(c, EPOLLIN | EPOLLOUT);
            return;
        }
        *(measuring ? &bytes_sent : &sent_before_window) += (uint64_t)sent;
        uint64_t left = (uint64_t)sent + c->offset;
        for (; c->written < c->queued; c->written++) {
            uint32_t length = c->ring[c->written & ring_mask].frame->length;
            if (left < length) break;
            left -= length;
        }
        c->offset = (uint32_t)left;
        pass_unanswered(c);
    }
    want_events(c, EPOLLIN);
}

static void on_response(struct connection *c, uint64_t now) {
    errno = 0;
    if (c->answered >= c->written) fail("a response came that nothing asked for");
    if (be32(c->peek + 4) != ((uint32_t)c->answered & 0x7fffffff)) fail("a response has the wrong correlation id");
    struct request *request = &c->ring[c->answered & ring_mask];
    int code = error_in(request->frame, c->peek, c->want);
    if (request->frame->flags & SHOWN) show(request->frame, c->peek, c->want);  /* make_room() has seen to it that all of it is there */
    uint64_t start = request->start_ns;
    int is_counted = counts(start);
    c->answered++;
    answered_in_all++;
    pass_unanswered(c);
    if (code && !errors++) first_error = code;
    if (!is_counted) return;
    uint64_t took = now > start ? now - start : 0;
    responses++;
    bytes_received += c->want;
    bucket[bucket_of(took)]++;
    if (took > max_ns) max_ns = took;
    if (took > reported_max_ns) reported_max_ns = took;
}

/* Keep the whole of a response that is to be shown, or as much as is looked at. */
static void make_room(struct connection *c) {
    int is_shown = c->answered < c->written && c->ring[c->answered & ring_mask].frame->flags & SHOWN;
    uint32_t room = is_shown && c->want > peek_bytes ? c->want : peek_bytes;
    if (room > c->room && !(c->peek = realloc(c->peek, room))) fail("memory");
    c->room = room;
}

/* `data` has arrived (NULL: `count` bytes that were thrown away inside one response). */
static void on_bytes(struct connection *c, const uint8_t *data, size_t count, uint64_t now) {
    while (count) {
        uint32_t need = c->want ? c->want - c->have : 4 - c->have;
        uint32_t step = count < need ? (uint32_t)count : need;
        if (data) {
            if (c->have < c->room) memcpy(c->peek + c->have, data, step < c->room - c->have ? step : c->room - c->have);
            data += step;
        }
        c->have += step;
        count -= step;
        if (!c->want && c->have == 4) {
            c->want = 4 + be32(c->peek);
            errno = 0;
            if (c->want < 8 || c->want > (1u << 30)) fail("a response has an impossible length");
            make_room(c);
        }
        if (c->want && c->have == c->want) {
            on_response(c, now);
            c->have = c->want = 0;
        }
    }
}

static void receive(struct connection *c) {
    for (;;) {
        ssize_t got;
        size_t asked;
        int body = option.discard && c->want && c->have >= c->room;
        if (body) {  /* the kernel drops the bytes without copying them: the generator must not be what is measured */
            asked = c->want - c->have;
            got = recv(c->fd, NULL, asked, MSG_TRUNC);
        } else {
            uint32_t room = c->want ? c->room : peek_bytes;
            asked = option.discard ? room - (c->have < room ? c->have : 0) : RECEIVE;
            if (option.discard && c->want && c->want - c->have < asked) asked = c->want - c->have;
            if (asked > RECEIVE) asked = RECEIVE;
            got = recv(c->fd, receive_buffer, asked, 0);
        }
        if (got < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN) return;
            fail("receive");
        }
        errno = 0;
        if (got == 0) fail("the broker closed the connection");
        on_bytes(c, body ? NULL : receive_buffer, (size_t)got, now_ns());
        if ((size_t)got < asked) return;
    }
}

static double cpu_s(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* Closed loop: whether a connection has room for another request. */
static int may_queue(const struct connection *c) {
    return c->queued - c->answered < (uint64_t)option.in_flight && (!option.lead || c->queued < slowest + option.lead);
}

/* Closed loop: as many requests as are missing. A request without an answer makes room for the next as soon as it is sent. */
static void fill(struct connection *c, uint64_t now) {
    do {
        while (may_queue(c)) queue_request(c, now);
        flush(c);
    } while (c->written == c->queued && may_queue(c));
}

/* With a limited lead: connections that were held up go on when the slowest has come further. */
static void follow_slowest(uint64_t now) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < option.connections; i++)
        if (connections[i].answered < least) least = connections[i].answered;
    if (least == slowest) return;
    slowest = least;
    for (int i = 0; i < option.connections; i++) fill(&connections[i], now);
}

/* Open loop: the n-th request is meant to be sent n / rate after the beginning, by connection n modulo their number. A connection whose
 * ring is full holds up all: the broker is that far behind, and what is held up keeps the time at which it was meant to be sent. */
static void send_due(uint64_t now) {
    uint64_t first = due, all = (uint64_t)option.connections;
    for (;; due++) {
        uint64_t at = began_ns + (uint64_t)((double)due / option.rate * 1e9);
        struct connection *c = &connections[due % all];
        if (at > now || (window_end_ns && at >= window_end_ns) || c->queued - c->answered > ring_mask) break;
        queue_request(c, at);
    }
    uint64_t touched = due - first < all ? due - first : all;
    for (uint64_t i = 0; i < touched; i++) {
        struct connection *c = &connections[(first + i) % all];
        if (!(c->interest & EPOLLOUT)) flush(c);
    }
}

/* How long epoll may wait, in milliseconds. An open loop polls, because its lateness would count as the broker's latency; one that rests
 * sleeps until its next request is due. */
static int wait_ms(uint64_t now) {
    if (option.rate <= 0) return 100;
    uint64_t at = began_ns + (uint64_t)((double)due / option.rate * 1e9);
    return option.rests && at > now ? (int)((at - now) / 1000000) + 1 : 0;
}

static int all_answered(void) {
    for (int i = 0; i < option.connections; i++)
        if (connections[i].answered < connections[i].queued) return 0;
    return 1;
}

/* The buckets that have grown beyond `before`, as JSON; with `before` they are remembered there. */
static void print_buckets(uint64_t *before) {
    const char *separator = "";
    printf("\"buckets\":[");
    for (uint32_t i = 0; i < BUCKETS; i++) {
        uint64_t count = bucket[i] - (before ? before[i] : 0);
        if (!count) continue;
        printf("%s[%u,%llu]", separator, i, (unsigned long long)count);
        separator = ",";
        if (before) before[i] = bucket[i];
    }
    printf("]}\n");
    fflush(stdout);
}

static void print_interval(uint64_t now) {
    printf("{\"event\":\"interval\",\"at_s\":%.3f,\"max_ns\":%llu,\"gap_ns\":%llu,", (double)(now - window_ns) / 1e9,
           (unsigned long long)reported_max_ns, (unsigned long long)reported_gap_ns);
    reported_max_ns = reported_gap_ns = 0;
    print_buckets(reported);
}

static void run(void) {
    struct epoll_event events[64];
    uint64_t warm_ns = (uint64_t)(option.warm_up_s * 1e9), duration_ns = (uint64_t)(option.duration_s * 1e9);
    double cpu_before = 0, cpu_after = 0;
    uint64_t now = began_ns = now_ns();
    uint64_t ended_ns = 0, next_interval_ns = 0, interval_ns = (uint64_t)(option.interval_s * 1e9);
    if (option.rate <= 0)
        for (int i = 0; i < option.connections; i++) fill(&connections[i], now);
    for (;;) {
        int is_warm = now - began_ns >= warm_ns || (option.max_bytes && sent_before_window >= option.max_bytes / 2);
        if (!measuring && !ended_ns && is_warm && (!to_show || now - began_ns >= warm_ns + PATIENCE_NS)) {
            measuring = 1;
            window_ns = now;
            next_interval_ns = now + interval_ns;
            window_end_ns = option.rate > 0 ? now + duration_ns : 0;
            cpu_before = cpu_s();
            answered_before_window = answered_in_all;
            printf("{\"event\":\"measuring\"}\n");
            fflush(stdout);
        }
        if (measuring && (now - window_ns >= duration_ns || (option.max_bytes && bytes_sent >= option.max_bytes) ||
                          (option.total && answered_in_all >= option.total))) {
            measuring = 0;
            ended_ns = now;
            if (window_end_ns > now) window_end_ns = now;
            cpu_after = cpu_s();
            if (option.rate <= 0) break;
        }
        if (interval_ns && measuring && now >= next_interval_ns) {
            print_interval(now);
            next_interval_ns += interval_ns;
        }
        if (option.rate > 0) send_due(now);
        if (ended_ns && (all_answered() || now - ended_ns > PATIENCE_NS)) break;
        int n = epoll_wait(epoll_fd, events, 64, wait_ms(now));
        if (n < 0 && errno != EINTR) fail("epoll_wait");
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(c);
            if (option.rate <= 0) fill(c, now_ns());
            else if (events[i].events & EPOLLOUT) flush(c);
        }
        if (option.lead) follow_slowest(now_ns());
        uint64_t before = now;
        now = now_ns();
        if (option.rate > 0 && now - before > reported_gap_ns) reported_gap_ns = now - before;
    }
    printf("{\"event\":\"done\",\"responses\":%llu,\"errors\":%llu,\"first_error\":%d,\"window_s\":%.6f,\"bytes_sent\":%llu,"
           "\"bytes_received\":%llu,\"max_ns\":%llu,\"generator_cpu_s\":%.6f,\"unanswered\":%d,\"answered\":%llu,",
           (unsigned long long)responses, (unsigned long long)errors, first_error,
           (double)((option.rate > 0 ? window_end_ns : ended_ns) - window_ns) / 1e9,
           (unsigned long long)bytes_sent, (unsigned long long)bytes_received, (unsigned long long)max_ns, cpu_after - cpu_before,
           option.rate > 0 && !all_answered(), (unsigned long long)(answered_in_all - answered_before_window));
    print_buckets(NULL);
}

int main(int argc, char **argv) {
    static const struct option names[] = {
        {"host", 1, 0, 'h'}, {"port", 1, 0, 'p'}, {"frames", 1, 0, 'f'}, {"connections", 1, 0, 'c'}, {"in-flight", 1, 0, 'i'},
        {"warm-up", 1, 0, 'w'}, {"duration", 1, 0, 'd'}, {"rate", 1, 0, 'r'}, {"total", 1, 0, 't'}, {"max-bytes", 1, 0, 'm'},
        {"interval", 1, 0, 'n'}, {"lead", 1, 0, 'l'}, {"answers", 1, 0, 'a'}, {"discard", 0, 0, 'x'}, {"rests", 0, 0, 's'},
        {0, 0, 0, 0}};
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) switch (c) {
            case 'h': option.host = optarg; break;
            case 'p': option.port = atoi(optarg); break;
            case 'f': option.frames_path = optarg; break;
            case 'c': option.connections = atoi(optarg); break;
            case 'i': option.in_flight = atoi(optarg); break;
            case 'w': option.warm_up_s = atof(optarg); break;
            case 'd': option.duration_s = atof(optarg); break;
            case 'r': option.rate = atof(optarg); break;
            case 't': option.total = strtoull(optarg, NULL, 10); break;
            case 'm': option.max_bytes = strtoull(optarg, NULL, 10); break;
            case 'n': option.interval_s = atof(optarg); break;
            case 'x': option.discard = 1; break;
            case 's': option.rests = 1; break;
            case 'l': option.lead = strtoull(optarg, NULL, 10); break;
            case 'a': option.answers_path = optarg; break;
            default: return 2;
        }
    if (!option.frames_path || option.port <= 0 || option.connections < 1 || option.connections > MAX_CONNECTIONS ||
        option.in_flight < 1 || option.in_flight > MAX_IN_FLIGHT)
        fail("usage: loadgen --port P --frames FILE|- [--host H] [--connections C] [--in-flight D] [--warm-up S] [--duration S] "
             "[--rate R] [--total N] [--max-bytes B] [--interval S] [--lead N] [--answers FILE] [--discard] [--rests]");
    if (!(answers = fopen(option.answers_path ? option.answers_path : "/dev/null", "wb"))) fail(option.answers_path);
    read_frames();
    open_connections();
    run();
    return 0;
}
