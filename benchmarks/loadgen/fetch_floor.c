/* The least that a broker can do for a fetch: what benchmarks/fetch_floor.py holds brokers against.
 *
 * Answers every frame with HEAD bytes, a part of a file and TAIL bytes, as a broker answers a fetch of one partition, by the same system
 * calls: recv, send with MSG_MORE, sendfile, send. It decodes nothing but lengths and correlation ids, looks nothing up and checks nothing.
 * Parts begin at random multiples of a step. Two things it does as a broker had better do, because the kernel makes the other way dearer:
 * what lies before the first page boundary is copied behind the head, and a socket that paces its packets gets one of them per call.
 *
 * fetch_floor FILE STEP BODY HEAD TAIL SEND_BUFFER     prints the port that it listens on; ends with its standard input
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PAGE = 4096,
    PACED = 15 * PAGE,
    ALIGNED = 256 * 1024,   /* above, what is copied before the first page makes no difference */
    MAX_HEAD = 256,
    REQUESTS = 64,          /* a power of two: waiting on a connection at most */
    RECEIVE = 16 * 1024,
};

struct connection {
    int fd, paced, is_answering, waits_for_room;
    uint32_t ids[REQUESTS], first, last; /* correlation ids, as they came, of requests that wait */
    uint8_t received[RECEIVE];
    size_t have;
    uint8_t begin[MAX_HEAD + PAGE];      /* the head of the answer that is being sent, and what is copied behind it */
    size_t begin_bytes, sent;
    off_t position;                      /* of the body in the file */
};

static int file, epoll_fd, send_buffer;
static size_t step, body, head, tail;
static uint64_t steps, state = 88172645463325252ull;
static const uint8_t zeros[MAX_HEAD];

static void fail(const char *what) {
    perror(what);
    exit(2);
}

static uint64_t next_random(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static void want(struct connection *c, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(epoll_fd, operation, c->fd, &event)) fail("epoll_ctl");
}

static void begin_answer(struct connection *c) {
    uint32_t length = htonl((uint32_t)(head - 4 + body + tail));
    memset(c->begin, 0, head);
    memcpy(c->begin, &length, 4);
    memcpy(c->begin + 4, &c->ids[c->first++ % REQUESTS], 4);
    c->position = (off_t)(next_random() % steps * step);
    size_t before_page = (size_t)(PAGE - c->position % PAGE) % PAGE;
    if (body > ALIGNED) before_page = 0;
    if (before_page && pread(file, c->begin + head, before_page, c->position) != (ssize_t)before_page) fail("pread");
    c->begin_bytes = head + before_page;
    c->sent = 0;
    c->is_answering = 1;
}

/* One system call's worth of the answer; 0 when the socket takes no more. */
static int send_some(struct connection *c) {
    size_t end = head + body;
    ssize_t sent;
    if (c->sent < c->begin_bytes) {
        sent = send(c->fd, c->begin + c->sent, c->begin_bytes - c->sent, MSG_MORE);
    } else if (c->sent < end) {
        off_t from = c->position + (off_t)(c->sent - head);
        size_t count = end - c->sent;
        if (c->paced && count > PACED + PAGE) count = PACED;
        sent = sendfile(c->fd, file, &from, count);
        if (sent == 0) fail("the file is too short");
    } else {
        sent = send(c->fd, zeros, end + tail - c->sent, 0);
    }
    if (sent < 0) {
        if (errno != EAGAIN) c->first = c->last, c->is_answering = 0; /* it left: epoll tells */
        return 0;
    }
    c->sent += (size_t)sent;
    if (c->sent == end + tail) c->is_answering = 0;
    return 1;
}

static void answer(struct connection *c) {
    while (c->is_answering || c->first != c->last) {
        if (!c->is_answering) begin_answer(c);
        if (!send_some(c)) break;
    }
    int waits = c->is_answering;
    if (waits != c->waits_for_room) want(c, EPOLL_CTL_MOD, waits ? EPOLLIN | EPOLLOUT : EPOLLIN);
    c->waits_for_room = waits;
}

/* 0 when the client is gone. */
static int receive(struct connection *c) {
    ssize_t got = recv(c->fd, c->received + c->have, RECEIVE - c->have, 0);
    if (got <= 0) return got < 0 && errno == EAGAIN;
    c->have += (size_t)got;
    size_t at = 0;
    for (uint32_t length; c->have - at >= 12; at += 4 + length) {
        memcpy(&length, c->received + at, 4);
        length = ntohl(length);
        if (length > RECEIVE - 4 || c->last - c->first == REQUESTS) return 0;
        if (c->have - at < 4 + (size_t)length) break;
        memcpy(&c->ids[c->last++ % REQUESTS], c->received + at + 8, 4);
    }
    c->have -= at;
    memmove(c->received, c->received + at, c->have);
    return 1;
}

static void accept_one(int listener) {
    struct connection *c = calloc(1, sizeof *c);
    int one = 1;
    char control[16] = "";
    socklen_t size = sizeof control - 1;
    if (!c || (c->fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) < 0) fail("accept");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (send_buffer > 0) setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer);
    getsockopt(c->fd, IPPROTO_TCP, TCP_CONGESTION, control, &size);
    c->paced = !strncmp(control, "bbr", 3);
    want(c, EPOLL_CTL_ADD, EPOLLIN);
}

int main(int argc, char **argv) {
    struct stat stat;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    struct epoll_event events[64], event = {.events = EPOLLIN};
    if (argc != 7) return fprintf(stderr, "usage: fetch_floor FILE STEP BODY HEAD TAIL SEND_BUFFER\n"), 2;
    if ((file = open(argv[1], O_RDONLY)) < 0 || fstat(file, &stat)) fail(argv[1]);
    step = strtoul(argv[2], NULL, 10), body = strtoul(argv[3], NULL, 10), head = strtoul(argv[4], NULL, 10);
    tail = strtoul(argv[5], NULL, 10), send_buffer = atoi(argv[6]);
    if (!step || (size_t)stat.st_size < body + step || head < 8 || head > MAX_HEAD || tail > MAX_HEAD) fail("sizes");
    steps = ((uint64_t)stat.st_size - body) / step;
    signal(SIGPIPE, SIG_IGN);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 64)) fail("listen");
    if (getsockname(listener, (struct sockaddr *)&address, &size)) fail("getsockname");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    struct connection standard_input = {.fd = 0};
    epoll_fd = epoll_create1(0);
    want(&standard_input, EPOLL_CTL_ADD, EPOLLIN);
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event)) fail("epoll_ctl");
    for (;;) {
        int n = epoll_wait(epoll_fd, events, 64, -1);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (c == &standard_input) return 0;
            if (!c) {
                accept_one(listener);
            } else if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR) && !receive(c)) {
                close(c->fd);
                free(c);
            } else {
                answer(c);
            }
        }
    }
}
