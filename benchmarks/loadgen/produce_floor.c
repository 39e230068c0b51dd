/* The least that a broker can do for a produce: what benchmarks/kernel_floor.py holds brokers against.
 *
 * Takes every frame off its socket and appends those that one read brought to a file, one per connection, with one system call, as a broker
 * does with batches for a partition of its own; then answers them with one send. It decodes nothing but lengths and correlation ids, computes
 * no checksum, knows no offsets and never flushes. A file begins anew, emptied, at MAX_FILE bytes, as a segment does that is rolled and
 * deleted. Two things it does as a broker had better do: a file has disk space ahead of its end, and a connection on which large frames come
 * has a receive buffer that holds one.
 *
 * produce_floor FOLDER ANSWER     ANSWER: the bytes of an answer, length included
 * Prints the port that it listens on; ends with its standard input.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    RECEIVE = 256 * 1024,   /* what a broker's one receive buffer holds */
    MAX_FRAME = 4 << 20,
    MAX_ANSWERS = 64 * 1024,
    MAX_FILE = 1 << 30,
    AHEAD = 64 << 20,       /* of disk space, set aside at once */
    TOGETHER = 64,          /* frames appended with one call */
    SMALL_BUFFER = 102400,  /* socket.receive.buffer.bytes */
    LARGE_BUFFER = 1 << 20,
};

struct connection {
    int fd, file, is_large;
    off_t end, reserved; /* of the file */
    uint8_t *kept;       /* the head of a frame that has not come completely */
    size_t kept_bytes;
};

static int epoll_fd;
static size_t answer_bytes;
static const char *folder;
static uint8_t received[RECEIVE], answers[MAX_ANSWERS];

static void fail(const char *what) {
    perror(what);
    exit(2);
}

static void watch(int fd, void *of) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = of};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
}

static void append(struct connection *c, const struct iovec *frames, int frame_count, size_t bytes) {
    if (c->end > MAX_FILE) {
        if (ftruncate(c->file, 0)) fail("ftruncate");
        c->end = c->reserved = 0;
    }
    if (c->end + (off_t)bytes > c->reserved) {
        /* A file system that cannot is none that this is for. */
        if (fallocate(c->file, FALLOC_FL_KEEP_SIZE, c->reserved, AHEAD) && errno != EOPNOTSUPP) fail("fallocate");
        c->reserved += AHEAD;
    }
    if (pwritev(c->file, frames, frame_count, c->end) != (ssize_t)bytes) fail("pwritev");
    c->end += (off_t)bytes;
}

/* What the kernel keeps for a connection, and offers its client to send. */
static void set_buffer(int fd, int bytes) {
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    setsockopt(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &bytes, sizeof bytes);
}

/* Appends the whole frames of `bytes`; returns how many bytes they are. */
static size_t handle(struct connection *c, uint8_t *bytes, size_t count) {
    struct iovec frames[TOGETHER];
    int frame_count = 0;
    size_t at = 0, out = 0, total = 0;
    for (uint32_t length; count - at >= 12; at += 4 + length) {
        memcpy(&length, bytes + at, 4);
        length = ntohl(length);
        if (length < 8 || length > MAX_FRAME) fail("a length");
        if (count - at < 4 + (size_t)length || out + answer_bytes > MAX_ANSWERS) break;
        if (frame_count == TOGETHER) break;
        frames[frame_count++] = (struct iovec){bytes + at + 4, length};
        total += length;
        uint32_t answer_length = htonl((uint32_t)answer_bytes - 4);
        memset(answers + out, 0, answer_bytes);
        memcpy(answers + out, &answer_length, 4);
        memcpy(answers + out + 4, bytes + at + 8, 4);
        out += answer_bytes;
    }
    if (frame_count) append(c, frames, frame_count, total);
    /* A client that does not read its answers is none of ours: they are small, and the socket takes them. */
    if (out && send(c->fd, answers, out, 0) < 0 && errno != EPIPE && errno != ECONNRESET) fail("send");
    return at;
}

/* 0 when the client is gone. A frame larger than the shared buffer is read right into memory of its size. */
static int receive(struct connection *c) {
    uint32_t length = 0;
    if (c->kept_bytes >= 4) memcpy(&length, c->kept, 4);
    size_t whole = 4 + (size_t)ntohl(length);
    if (whole > MAX_FRAME) fail("a length");
    int is_large = whole > RECEIVE;
    if (is_large && !c->is_large) set_buffer(c->fd, LARGE_BUFFER), c->is_large = 1;
    if (!is_large) memcpy(received, c->kept, c->kept_bytes);
    uint8_t *into = is_large ? c->kept : received;
    ssize_t got = recv(c->fd, into + c->kept_bytes, (is_large ? whole : RECEIVE) - c->kept_bytes, 0);
    if (got <= 0) return got < 0 && errno == EAGAIN;
    size_t have = c->kept_bytes + (size_t)got;
    size_t done = handle(c, into, have);
    c->kept_bytes = have - done;
    memmove(c->kept, into + done, done || !is_large ? c->kept_bytes : 0);
    return 1;
}

static void accept_one(int listener) {
    struct connection *c = calloc(1, sizeof *c);
    int one = 1;
    if (!c || !(c->kept = malloc(MAX_FRAME)) || (c->fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) < 0) fail("accept");
    if ((c->file = open(folder, O_TMPFILE | O_RDWR, 0600)) < 0) fail(folder);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    set_buffer(c->fd, SMALL_BUFFER);
    watch(c->fd, c);
}

static void forget(struct connection *c) {
    close(c->fd);
    close(c->file);
    free(c->kept);
    free(c);
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    struct epoll_event events[64];
    if (argc != 3) return fprintf(stderr, "usage: produce_floor FOLDER ANSWER\n"), 2;
    folder = argv[1], answer_bytes = strtoul(argv[2], NULL, 10);
    if (answer_bytes < 8 || answer_bytes > 4096) return fprintf(stderr, "ANSWER is from 8 to 4096\n"), 2;
    signal(SIGPIPE, SIG_IGN);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 64)) fail("listen");
    if (getsockname(listener, (struct sockaddr *)&address, &size)) fail("getsockname");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    struct connection standard_input = {.fd = 0};
    epoll_fd = epoll_create1(0);
    watch(0, &standard_input);
    watch(listener, NULL);
    for (;;) {
        int n = epoll_wait(epoll_fd, events, 64, -1);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (c == &standard_input) return 0;
            if (!c) {
                accept_one(listener);
            } else if (!receive(c)) {
                forget(c);
            }
        }
    }
}
