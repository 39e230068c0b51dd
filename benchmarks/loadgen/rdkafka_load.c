/* Drives librdkafka from C, so that the client library and not a language around it is what loads the broker.
 *
 *   rdkafka_load LIBRARY produce BOOTSTRAP TOPIC WARM_UP_S DURATION_S
 *       messages of 100 bytes, linger 5 ms, everything else librdkafka's default; counts acknowledged messages in the window
 *   rdkafka_load LIBRARY group|assign BOOTSTRAP TOPIC MESSAGES PARTITIONS
 *       reads that many messages from the beginning; the window runs from the first message to the last
 * KEY=VALUE after these is set in the client's configuration.
 *
 * LIBRARY is the shared object that the confluent-kafka package brings, opened at run time: no headers and no second librdkafka needed.
 * Prints {"event":"measuring"} and {"event":"done","messages":N,"window_s":S,"errors":E} like loadgen.c.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PRODUCER, CONSUMER };                        /* rd_kafka_type_t */
enum { PARTITION_UNASSIGNED = -1, FROM_BEGINNING = -2 };
enum { MESSAGE_BYTES = 100, BATCH = 1000, CONSUME_BATCH = 10000, SILENT_S = 30 };

/* librdkafka's public, stable ABI, as far as it is used. */
typedef struct {
    int err;
    void *topic;
    int32_t partition;
    void *payload;
    size_t length;
    void *key;
    size_t key_length;
    int64_t offset;
    void *private_data;
} message;
typedef struct {
    char *topic;
    int32_t partition;
    int64_t offset;
    void *metadata;
    size_t metadata_size;
    void *opaque;
    int err;
    void *private_data;
} topic_partition;

static void *library;
static uint64_t acknowledged, errors;
static int first_error;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "rdkafka_load: %s: %s\n", what, why);
    exit(2);
}

static void *symbol(const char *name) {
    void *found = dlsym(library, name);
    if (!found) fail("librdkafka lacks", name);
    return found;
}
#define CALL(result, name, ...) ((result(*) __VA_ARGS__)symbol(name))

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void on_delivery(void *client, const message *m, void *opaque) {
    (void)client;
    (void)opaque;
    if (!m->err) acknowledged++;
    else if (!errors++) first_error = m->err;
}

static void set(void *conf, const char *key, const char *value) {
    char why[512];
    if (CALL(int, "rd_kafka_conf_set", (void *, const char *, const char *, char *, size_t))(conf, key, value, why, sizeof why))
        fail(key, why);
}

static char **settings;                             /* KEY=VALUE of the client, up to a NULL */

static void *client(int type, const char *bootstrap, const char *group) {
    char why[512];
    void *conf = CALL(void *, "rd_kafka_conf_new", (void))();
    set(conf, "bootstrap.servers", bootstrap);
    if (type == PRODUCER) {
        set(conf, "linger.ms", "5");
        CALL(void, "rd_kafka_conf_set_dr_msg_cb", (void *, void (*)(void *, const message *, void *)))(conf, on_delivery);
    } else {
        set(conf, "group.id", group);
        set(conf, "auto.offset.reset", "earliest");
    }
    for (char **setting = settings; *setting; setting++) {
        char *value = strchr(*setting, '=');
        if (!value) fail(*setting, "KEY=VALUE is needed");
        *value = 0;
        set(conf, *setting, value + 1);
    }
    void *made = CALL(void *, "rd_kafka_new", (int, void *, char *, size_t))(type, conf, why, sizeof why);
    if (!made) fail("rd_kafka_new", why);
    return made;
}

static void measuring(void) {
    printf("{\"event\":\"measuring\"}\n");
    fflush(stdout);
}

static void done(uint64_t messages, double seconds) {
    printf("{\"event\":\"done\",\"messages\":%llu,\"window_s\":%.6f,\"errors\":%llu,\"first_error\":%d}\n", (unsigned long long)messages,
           seconds, (unsigned long long)errors, first_error);
    fflush(stdout);
}

static void produce(const char *bootstrap, const char *topic, double warm_up_s, double duration_s) {
    int (*produce_batch)(void *, int32_t, int, message *, int) = (int (*)(void *, int32_t, int, message *, int))symbol("rd_kafka_produce_batch");
    int (*poll)(void *, int) = (int (*)(void *, int))symbol("rd_kafka_poll");
    void *rk = client(PRODUCER, bootstrap, NULL);
    void *rkt = CALL(void *, "rd_kafka_topic_new", (void *, const char *, void *))(rk, topic, NULL);
    static char payload[MESSAGE_BYTES];
    static message batch[BATCH], template[BATCH];
    for (int i = 0; i < MESSAGE_BYTES; i++) payload[i] = (char)('a' + i % 26);
    for (int i = 0; i < BATCH; i++) template[i] = (message){.payload = payload, .length = MESSAGE_BYTES, .partition = PARTITION_UNASSIGNED};
    double began = now_s(), window = 0, ended = 0, last_progress = began;
    uint64_t before = 0, seen = 0;
    while (!ended) {
        memcpy(batch, template, sizeof batch);
        int taken = produce_batch(rkt, PARTITION_UNASSIGNED, 0, batch, BATCH);
        poll(rk, taken < BATCH ? 1 : 0);  /* the queue is full: what did not fit is simply made again */
        double now = now_s();
        if (acknowledged != seen) seen = acknowledged, last_progress = now;
        if (now - last_progress > SILENT_S || errors) fail("produce", errors ? "a message was not delivered" : "nothing was acknowledged for 30 s");
        if (!window && now - began >= warm_up_s) {
            window = now;
            before = acknowledged;
            measuring();
        }
        if (window && now - window >= duration_s) ended = now;
    }
    uint64_t counted = acknowledged - before;
    done(counted, ended - window);
    int left = CALL(int, "rd_kafka_flush", (void *, int))(rk, SILENT_S * 1000);
    if (left) fail("flush", "messages are left");
    printf("{\"event\":\"flushed\",\"messages\":%llu}\n", (unsigned long long)acknowledged);
}

static void consume(const char *mode, const char *bootstrap, const char *topic, uint64_t messages, int partitions) {
    char group[64];
    snprintf(group, sizeof group, "benchmark-%ld-%lld", (long)getpid(), (long long)time(NULL));
    void *rk = client(CONSUMER, bootstrap, group);
    CALL(int, "rd_kafka_poll_set_consumer", (void *))(rk);
    void *list = CALL(void *, "rd_kafka_topic_partition_list_new", (int))(partitions);
    topic_partition *(*add)(void *, const char *, int32_t) = (topic_partition * (*)(void *, const char *, int32_t)) symbol("rd_kafka_topic_partition_list_add");
    int err;
    if (!strcmp(mode, "group")) {
        add(list, topic, PARTITION_UNASSIGNED);
        err = CALL(int, "rd_kafka_subscribe", (void *, void *))(rk, list);
    } else {
        for (int i = 0; i < partitions; i++) add(list, topic, i)->offset = FROM_BEGINNING;
        err = CALL(int, "rd_kafka_assign", (void *, void *))(rk, list);
    }
    if (err) fail(mode, "refused");
    CALL(void, "rd_kafka_topic_partition_list_destroy", (void *))(list);
    void *queue = CALL(void *, "rd_kafka_queue_get_consumer", (void *))(rk);
    ssize_t (*consume_batch)(void *, int, message **, size_t) = (ssize_t(*)(void *, int, message **, size_t))symbol("rd_kafka_consume_batch_queue");
    void (*destroy)(message *) = (void (*)(message *))symbol("rd_kafka_message_destroy");
    static message *batch[CONSUME_BATCH];
    double asked = now_s(), first = 0, last = asked;
    uint64_t got = 0, in_window = 0;
    while (got < messages) {
        ssize_t count = consume_batch(queue, 100, batch, CONSUME_BATCH);
        double now = now_s();
        uint64_t fine = 0;
        for (ssize_t i = 0; i < count; i++) {
            fine += !batch[i]->err;
            if (batch[i]->err && batch[i]->err > 0 && !errors++) first_error = batch[i]->err;
            destroy(batch[i]);
        }
        if (fine && !first) {
            first = now;  /* what came with the first call took an unknown time: it opens the window and is not counted */
            measuring();
        } else {
            in_window += fine;
        }
        got += fine;
        if (fine) last = now;
        if (now - last > SILENT_S || errors) fail("consume", errors ? "an error came instead of a message" : "no message for 30 s");
    }
    done(in_window, last - first);
    CALL(void, "rd_kafka_queue_destroy", (void *))(queue);
    CALL(int, "rd_kafka_consumer_close", (void *))(rk);
}

int main(int argc, char **argv) {
    if (argc < 7) fail("usage", "rdkafka_load LIBRARY produce|group|assign BOOTSTRAP TOPIC WARM_UP_S|MESSAGES DURATION_S|PARTITIONS [KEY=VALUE...]");
    settings = argv + 7;
    if (!(library = dlopen(argv[1], RTLD_NOW))) fail(argv[1], dlerror());
    if (!strcmp(argv[2], "produce")) produce(argv[3], argv[4], atof(argv[5]), atof(argv[6]));
    else consume(argv[2], argv[3], argv[4], strtoull(argv[5], NULL, 10), atoi(argv[6]));
    return 0;
}
