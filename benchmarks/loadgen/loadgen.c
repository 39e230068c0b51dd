/* Load generator: one thread, epoll, prepared request frames.
 *
 * Reads whole request frames (4-byte length, api key, version, correlation id, ...) from a file, opens connections, keeps a number of
 * requests in flight on each (closed loop) or sends at a fixed rate whatever the answers do (open loop), and prints lines of JSON:
 *   {"event":"measuring"}   when the warm-up is over
 *   {"event":"interval",..} with --interval: what was answered since the last such line, inside the window
 *   {"event":"done",...}    counts, window, latency buckets; "answered" is all that came between the two lines, also what does not count
 * Only a response's length and correlation id are parsed, and 16-bit error codes at fixed places (--check) that must be zero.
 *
 * On an open loop the connections take turns: one request of each, then the next of each. That is also how thousands of connections are
 * made to be active in turn.
 *
 * Frames are dealt round robin: with C connections, connection i sends frames i, i+C, i+2C, ... over and over. They are shared and never
 * written to; the twelve bytes with the correlation id are copied per request, the rest is sent from where it lies (writev).
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
    MAX_CHECKS = 4,
    MAX_IN_FLIGHT = 4096,   /* a power of two: the longest ring of requests waiting for their response */
    RING_SLOTS = 131072,    /* a power of two: of all rings together on an open loop, so that many connections have short ones */
    MIN_RING = 8,
    TOGETHER = 25,          /* connections opened before the last of them must have been accepted */
    MAX_IOV = 64,
    PEEK = 256,             /* enough of a response to see every checked place */
    RECEIVE = 256 * 1024,
};

static const uint64_t DRAIN_NS = 30000000000ull; /* open loop: how long answers may still come after the window */

struct frame { const uint8_t *bytes; uint32_t length; };

struct request { uint64_t start_ns; uint32_t frame; uint8_t head[HEAD]; };

struct connection {
    int fd;
    uint32_t interest;                   /* what epoll was asked for */
    uint32_t next_frame;                 /* index of the next frame to send */
    uint64_t queued, written, answered;  /* requests: put into the ring, handed to the kernel completely, answered */
    uint32_t offset;                     /* bytes of request `written` the kernel has already */
    struct request *ring;                /* requests `answered` to `queued` */
    uint8_t peek[PEEK];                  /* the first bytes of the response that is arriving, length included */
    uint32_t have;                       /* how many bytes of it have arrived, length included */
    uint32_t want;                       /* its whole length, length included; 0 until known */
};

static struct {
    const char *host, *frames_path;
    int port, connections, in_flight, discard, checks;
    double warm_up_s, duration_s, rate, interval_s;
    uint64_t total, max_bytes;
    uint32_t check[MAX_CHECKS];
} option = {.host = "127.0.0.1", .connections = 1, .in_flight = 1, .duration_s = 1};

static struct frame *frames;
static uint32_t frame_count;
static struct connection *connections;
static int epoll_fd;
static uint32_t ring_mask;               /* slots of a ring, less one */
static uint64_t due;                     /* open loop: requests that were meant to be sent until now */
static uint8_t receive_buffer[RECEIVE];

static uint64_t bucket[BUCKETS], reported[BUCKETS], reported_max_ns;
static uint64_t responses, errors, bytes_sent, bytes_received, max_ns, answered_in_all, answered_before_window;
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

static void read_frames(void) {
    FILE *file = strcmp(option.frames_path, "-") ? fopen(option.frames_path, "rb") : stdin;
    if (!file) fail(option.frames_path);
    uint32_t room = 0;
    uint8_t prefix[4];
    while (fread(prefix, 1, 4, file) == 4) {
        uint32_t body = be32(prefix);
        uint8_t *bytes = malloc(4 + (size_t)body);
        errno = 0;
        if (!bytes || body < HEAD - 4 || body > (1u << 30)) fail("a frame is shorter than its header or longer than 1 GiB");
        memcpy(bytes, prefix, 4);
        if (fread(bytes + 4, 1, body, file) != body) fail("the last frame is cut short");
        if (frame_count == room && !(frames = realloc(frames, sizeof *frames * (room = room ? 2 * room : 64)))) fail("memory");
        frames[frame_count++] = (struct frame){bytes, 4 + body};
    }
    errno = 0;
    if (!frame_count) fail("no frames");
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
        if (fcntl(c->fd, F_SETFL, O_NONBLOCK)) fail("fcntl");
        c->next_frame = (uint32_t)i % frame_count;
        if (!(c->ring = calloc(ring_mask + 1, sizeof *c->ring))) fail("memory");
        want_events(c, EPOLLIN);
    }
}

/* Put one request into the ring; flush() sends it. */
static void queue_request(struct connection *c, uint64_t start_ns) {
    struct request *request = &c->ring[c->queued & ring_mask];
    uint32_t correlation_id = (uint32_t)c->queued & 0x7fffffff;
    memcpy(request->head, frames[c->next_frame].bytes, HEAD - 4);
    for (int i = 0; i < 4; i++) request->head[HEAD - 4 + i] = (uint8_t)(correlation_id >> (24 - 8 * i));
    request->frame = c->next_frame;
    request->start_ns = start_ns;
    c->next_frame = (uint32_t)(((uint64_t)c->next_frame + (uint32_t)option.connections) % frame_count);
    c->queued++;
}

/* Hand as much as the kernel takes of the queued requests to it. */
static void flush(struct connection *c) {
    while (c->written < c->queued) {
        struct iovec iov[MAX_IOV];
        int n = 0;
        uint32_t skip = c->offset;
        for (uint64_t r = c->written; r < c->queued && n + 2 <= MAX_IOV; r++, skip = 0) {
            struct request *request = &c->ring[r & ring_mask];
            const struct frame *frame = &frames[request->frame];
            uint32_t body = skip > HEAD ? skip : HEAD;
            if (skip < HEAD) iov[n++] = (struct iovec){request->head + skip, HEAD - skip};
            if (body < frame->length) iov[n++] = (struct iovec){(void *)(frame->bytes + body), frame->length - body};
        }
        ssize_t sent = writev(c->fd, iov, n);
        if (sent < 0) {
            if (errno == EINTR) continue;
            if (errno != EAGAIN) fail("the broker closed the connection while a request was sent");
            want_events(c, EPOLLIN | EPOLLOUT);
            return;
        }
        if (measuring) bytes_sent += (uint64_t)sent;
        uint64_t left = (uint64_t)sent + c->offset;
        for (; c->written < c->queued; c->written++) {
            uint32_t length = frames[c->ring[c->written & ring_mask].frame].length;
            if (left < length) break;
            left -= length;
        }
        c->offset = (uint32_t)left;
    }
    want_events(c, EPOLLIN);
}

static void on_response(struct connection *c, uint64_t now) {
    errno = 0;
    if (c->answered >= c->written) fail("a response came that nothing asked for");
    if (be32(c->peek + 4) != ((uint32_t)c->answered & 0x7fffffff)) fail("a response has the wrong correlation id");
    int code = 0;
    for (int i = 0; i < option.checks && !code; i++) {
        uint32_t at = 4 + option.check[i];
        code = at + 2 <= c->want ? (int16_t)(c->peek[at] << 8 | c->peek[at + 1]) : -2;
    }
    uint64_t start = c->ring[c->answered & ring_mask].start_ns;
    c->answered++;
    answered_in_all++;
    /* Open loop: what was meant to be sent inside the window counts, also when it is answered after it. */
    int counts = option.rate > 0 ? start >= window_ns && start < window_end_ns && window_ns : measuring;
    if (!counts && !code) return;
    if (code && !errors++) first_error = code;
    if (!counts) return;
    uint64_t took = now > start ? now - start : 0;
    responses++;
    bytes_received += c->want;
    bucket[bucket_of(took)]++;
    if (took > max_ns) max_ns = took;
    if (took > reported_max_ns) reported_max_ns = took;
}

/* `data` has arrived (NULL: `count` bytes that were thrown away inside one response). */
static void on_bytes(struct connection *c, const uint8_t *data, size_t count, uint64_t now) {
    while (count) {
        uint32_t need = c->want ? c->want - c->have : 4 - c->have;
        uint32_t step = count < need ? (uint32_t)count : need;
        if (data) {
            if (c->have < PEEK) memcpy(c->peek + c->have, data, step < PEEK - c->have ? step : PEEK - c->have);
            data += step;
        }
        c->have += step;
        count -= step;
        if (!c->want && c->have == 4) {
            c->want = 4 + be32(c->peek);
            errno = 0;
            if (c->want < 8 || c->want > (1u << 30)) fail("a response has an impossible length");
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
        int body = option.discard && c->want && c->have >= PEEK;
        if (body) {  /* the kernel drops the bytes without copying them: the generator must not be what is measured */
            asked = c->want - c->have;
            got = recv(c->fd, NULL, asked, MSG_TRUNC);
        } else {
            asked = option.discard ? PEEK - (c->have < PEEK ? c->have : 0) : RECEIVE;
            if (option.discard && c->want && c->want - c->have < asked) asked = c->want - c->have;
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

/* Closed loop: as many requests as are missing. */
static void fill(struct connection *c, uint64_t now) {
    while (c->queued - c->answered < (uint64_t)option.in_flight) queue_request(c, now);
    flush(c);
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
    printf("{\"event\":\"interval\",\"at_s\":%.3f,\"max_ns\":%llu,", (double)(now - window_ns) / 1e9, (unsigned long long)reported_max_ns);
    reported_max_ns = 0;
    print_buckets(reported);
}

static void run(void) {
    struct epoll_event events[64];
    uint64_t warm_ns = (uint64_t)(option.warm_up_s * 1e9), duration_ns = (uint64_t)(option.duration_s * 1e9), sent_before_window = 0;
    double cpu_before = 0, cpu_after = 0;
    uint64_t now = began_ns = now_ns();
    uint64_t ended_ns = 0, next_interval_ns = 0, interval_ns = (uint64_t)(option.interval_s * 1e9);
    if (option.rate <= 0)
        for (int i = 0; i < option.connections; i++) fill(&connections[i], now);
    for (;;) {
        uint64_t answered_before = answered_in_all;
        if (!measuring && !ended_ns && (now - began_ns >= warm_ns || (option.max_bytes && sent_before_window >= option.max_bytes / 2))) {
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
        if (ended_ns && (all_answered() || now - ended_ns > DRAIN_NS)) break;
        /* Open loop polls without sleeping: waking up late would count as the broker's latency. */
        int n = epoll_wait(epoll_fd, events, 64, option.rate > 0 ? 0 : 100);
        if (n < 0 && errno != EINTR) fail("epoll_wait");
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(c);
            if (option.rate <= 0) fill(c, now_ns());
            else if (events[i].events & EPOLLOUT) flush(c);
        }
        if (!measuring) sent_before_window += (answered_in_all - answered_before) * frames[0].length;
        now = now_ns();
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
        {"interval", 1, 0, 'n'}, {"check", 1, 0, 'k'}, {"discard", 0, 0, 'x'}, {0, 0, 0, 0}};
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
            case 'k':
                if (option.checks == MAX_CHECKS || atoi(optarg) < 4 || atoi(optarg) > PEEK - 6) fail("--check: at most 4, in the first 250 bytes");
                option.check[option.checks++] = (uint32_t)atoi(optarg);
                break;
            default: return 2;
        }
    if (!option.frames_path || option.port <= 0 || option.connections < 1 || option.connections > MAX_CONNECTIONS ||
        option.in_flight < 1 || option.in_flight > MAX_IN_FLIGHT)
        fail("usage: loadgen --port P --frames FILE|- [--host H] [--connections C] [--in-flight D] [--warm-up S] [--duration S] "
             "[--rate R] [--total N] [--max-bytes B] [--interval S] [--check OFFSET]... [--discard]");
    read_frames();
    open_connections();
    run();
    return 0;
}
