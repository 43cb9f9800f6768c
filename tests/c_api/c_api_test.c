/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls the whole C API from a C99 program. Ranks are threads, which join over a store of this
 * program or by a URL.
 */
#include <pthread.h>
#include <rondo/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

/* ---- a store ---- */

typedef struct {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  char key[256], value[8192];
  int full, broken;
} shared_store;

static int store_put(void* context, const char* key, const char* value) {
  shared_store* store = context;
  if (store->broken) return 77;
  pthread_mutex_lock(&store->mutex);
  snprintf(store->key, sizeof store->key, "%s", key);
  snprintf(store->value, sizeof store->value, "%s", value);
  store->full = 1;
  pthread_cond_broadcast(&store->changed);
  pthread_mutex_unlock(&store->mutex);
  return 0;
}

static int store_get(void* context, const char* key, char* value, size_t capacity,
                     uint64_t timeout_ms) {
  shared_store* store = context;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += (time_t)(timeout_ms / 1000) + 1;
  int status = 0;
  pthread_mutex_lock(&store->mutex);
  while (!(store->full && strcmp(store->key, key) == 0) && status == 0)
    status = pthread_cond_timedwait(&store->changed, &store->mutex, &until);
  if (status == 0) snprintf(value, capacity, "%s", store->value);
  pthread_mutex_unlock(&store->mutex);
  return status == 0 ? 0 : RONDO_DEADLINE_EXCEEDED;
}

/* ---- ranks ---- */

typedef struct {
  int rank;
  const char* url;
  shared_store* store;
  void (*body)(rondo_communicator* communicator, int rank);
  void (*change)(rondo_options* options);
} rank_start;

static void* rank_main(void* argument) {
  const rank_start* start = argument;
  rondo_options options;
  CHECK(rondo_options_init(&options) == RONDO_OK);
  const rondo_store store = {start->store, store_put, store_get};
  options.rank = start->rank;
  options.size = ranks;
  options.connect_deadline_ms = 30000;
  options.deadline_ms = 60000;
  if (start->store != NULL) options.store = &store;
  if (start->url != NULL) options.rendezvous = start->url;
  if (start->change != NULL) start->change(&options);
  rondo_communicator* communicator = NULL;
  const rondo_status status = rondo_connect(&options, &communicator);
  CHECK(status == RONDO_OK && communicator != NULL);
  if (communicator == NULL) return NULL;
  CHECK(rondo_rank(communicator) == start->rank);
  CHECK(rondo_size(communicator) == ranks);
  start->body(communicator, start->rank);
  rondo_destroy(communicator);
  return NULL;
}

static void run_with(const char* url, void (*body)(rondo_communicator*, int),
                     void (*change)(rondo_options*)) {
  shared_store store = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, "", "", 0, 0};
  pthread_t threads[ranks];
  rank_start starts[ranks];
  for (int rank = 0; rank < ranks; ++rank) {
    const rank_start start = {rank, url, url == NULL ? &store : NULL, body, change};
    starts[rank] = start;
    if (pthread_create(&threads[rank], NULL, rank_main, &starts[rank]) != 0) abort();
  }
  for (int rank = 0; rank < ranks; ++rank) pthread_join(threads[rank], NULL);
}

static void run_ranks(const char* url, void (*body)(rondo_communicator*, int)) {
  run_with(url, body, NULL);
}

/* ---- what they do ---- */

static int all_are(const float* values, size_t n, float wanted) {
  for (size_t i = 0; i < n; ++i)
    if (values[i] != wanted) return 0;
  return 1;
}

static void fill(float* values, size_t n, float value) {
  for (size_t i = 0; i < n; ++i) values[i] = value;
}

/* Makes a call. With `late` it takes a request and waits for that; otherwise the call waits. */
#define DO(late, call_with)                                 \
  do {                                                      \
    rondo_request* request = NULL;                          \
    rondo_request** const place = (late) ? &request : NULL; \
    CHECK((call_with) == RONDO_OK);                         \
    CHECK(rondo_wait(request) == RONDO_OK);                 \
  } while (0)

static void collectives(rondo_communicator* c, int rank) {
  static const size_t counts[ranks] = {1, 0, 4};
  float* in = malloc(ranks * count * sizeof *in);
  float* out = malloc(ranks * count * sizeof *out);
  const float mine = (float)(rank + 1);
  for (int late = 0; late < 2; ++late) {
    fill(in, ranks * count, mine);
    DO(late, rondo_all_reduce(c, in, out, count, RONDO_F32, RONDO_SUM, NULL, place));
    CHECK(all_are(out, count, 6));
    DO(late,
       rondo_reduce(c, in, rank == 1 ? out : NULL, count, RONDO_F32, RONDO_MAX, 1, NULL, place));
    CHECK(rank != 1 || all_are(out, count, 3));
    DO(late, rondo_broadcast(c, rank == 2 ? in : NULL, out, count, RONDO_F32, 2, NULL, place));
    CHECK(all_are(out, count, 3));
    DO(late, rondo_all_gather(c, in, out, count, RONDO_F32, NULL, place));
    for (int r = 0; r < ranks; ++r) CHECK(all_are(out + r * count, count, (float)(r + 1)));
    DO(late, rondo_reduce_scatter(c, in, out, count, RONDO_F32, RONDO_SUM, NULL, place));
    CHECK(all_are(out, count, 6));
    DO(late, rondo_gather(c, in, rank == 0 ? out : NULL, count, RONDO_F32, 0, NULL, place));
    CHECK(rank != 0 || all_are(out + 2 * count, count, 3));
    DO(late, rondo_scatter(c, rank == 0 ? in : NULL, out, count, RONDO_F32, 0, NULL, place));
    CHECK(all_are(out, count, 1));
    DO(late, rondo_all_to_all(c, in, out, count, RONDO_F32, NULL, place));
    for (int r = 0; r < ranks; ++r) CHECK(all_are(out + r * count, count, (float)(r + 1)));
    DO(late, rondo_all_gather_v(c, in, out, counts, RONDO_F32, NULL, place));
    CHECK(out[0] == 1 && all_are(out + 1, 4, 3));
    DO(late, rondo_reduce_scatter_v(c, in, out, counts, RONDO_F32, RONDO_SUM, NULL, place));
    CHECK(all_are(out, counts[rank], 6));
    DO(late, rondo_barrier(c, NULL, place));
    /* Rank r sends r + 1 elements to each rank. */
    size_t sends[ranks], receives[ranks];
    for (size_t r = 0; r < ranks; ++r) {
      sends[r] = (size_t)rank + 1;
      receives[r] = r + 1;
    }
    DO(late, rondo_all_to_all_v(c, in, sends, out, receives, RONDO_F32, NULL, place));
    CHECK(out[0] == 1 && all_are(out + 1, 2, 2) && all_are(out + 3, 3, 3));
  }
  rondo_call call = {0};
  call.bytes = sizeof call;
  call.has_scale = 1;
  call.scale = 0.5;
  call.urgent = 1;
  call.tag = "half";
  CHECK(rondo_all_reduce(c, in, out, 10, RONDO_F32, RONDO_SUM, &call, NULL) == RONDO_OK);
  CHECK(all_are(out, 10, 3));
  fill(in, 10, 1);
  call.has_scale = 0;
  call.has_input_scale = rank != 0; /* rank 0 has none */
  call.input_scale = rank + 0.5;
  CHECK(rondo_all_reduce(c, in, out, 10, RONDO_F32, RONDO_SUM, &call, NULL) == RONDO_OK);
  CHECK(all_are(out, 10, 5)); /* 1 + 1.5 + 2.5 */
  call.has_input_scale = 1;
  CHECK(rondo_all_reduce(c, in, out, 10, RONDO_F32, RONDO_MAX, &call, NULL) ==
        RONDO_INVALID_ARGUMENT);
  CHECK(strstr(rondo_message(), "applies to sum and mean") != NULL);
  free(in);
  free(out);
}

static void messages(rondo_communicator* c, int rank) {
  float in = (float)rank, out = -1;
  if (rank == 0) CHECK(rondo_send(c, &in, 1, RONDO_F32, 1, 7, NULL, NULL) == RONDO_OK);
  if (rank == 1)
    CHECK(rondo_receive(c, &out, 1, RONDO_F32, 0, 7, NULL, NULL) == RONDO_OK && out == 0);
  const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
  const rondo_transfer ring[] = {{1, &out, 1, RONDO_F32, before, 1},
                                 {0, &in, 1, RONDO_F32, next, 1}};
  CHECK(rondo_batch(c, ring, 2, NULL, NULL) == RONDO_OK);
  CHECK(out == (float)before);
  CHECK(rondo_batch(c, NULL, 0, NULL, NULL) == RONDO_OK);
}

static void from_any_rank(rondo_communicator* c, int rank) {
  const float in = (float)rank;
  if (rank != 0) {
    for (int i = 0; i < 3; ++i) {
      rondo_request* request = NULL;
      int done = 0;
      CHECK(rondo_send(c, &in, 1, RONDO_F32, 0, 7, NULL, &request) == RONDO_OK);
      CHECK(rondo_poll(request, 30000, &done) == RONDO_OK && done == 1 &&
            rondo_source(request) == -1);
      CHECK(rondo_wait(request) == RONDO_OK);
    }
    CHECK(rondo_barrier(c, NULL, NULL) == RONDO_OK);
    return;
  }
  int from[ranks] = {0};
  for (int i = 0; i < 3 * (ranks - 1); ++i) {
    float out = -1;
    rondo_request* request = NULL;
    int source = -1, done = 0;
    if (i % 2 == 0) { /* without a request the source is not told */
      CHECK(rondo_receive_any(c, &out, 1, RONDO_F32, 7, NULL, NULL) == RONDO_OK);
      source = (int)out;
    } else {
      CHECK(rondo_receive_any(c, &out, 1, RONDO_F32, 7, NULL, &request) == RONDO_OK);
      while (!done) CHECK(rondo_poll(request, 30000, &done) == RONDO_OK);
      source = rondo_source(request);
      rondo_release(request);
    }
    CHECK(source > 0 && source < ranks && out == (float)source);
    if (source > 0 && source < ranks) ++from[source];
  }
  for (int peer = 1; peer < ranks; ++peer) CHECK(from[peer] == 3);
  CHECK(rondo_source(NULL) == -1);
  CHECK(rondo_receive_any(c, NULL, 1, RONDO_F32, 7, NULL, NULL) == RONDO_INVALID_ARGUMENT);
  CHECK(strstr(rondo_message(), "receive_any on rank 0: out.data is null") != NULL);
  CHECK(rondo_barrier(c, NULL, NULL) == RONDO_OK);
}

static void split_and_memory(rondo_communicator* c, int rank) {
  rondo_communicator* part = NULL;
  CHECK(rondo_split(c, rank == 1 ? -1 : 4, -rank, &part) == RONDO_OK);
  CHECK((part == NULL) == (rank == 1));
  rondo_memory* memory = NULL;
  CHECK(rondo_allocate(c, count * sizeof(float), &memory) == RONDO_OK);
  float* values = rondo_data(memory);
  fill(values, count, 1);
  if (part != NULL) {
    CHECK(rondo_size(part) == 2 && rondo_rank(part) == (rank == 2 ? 0 : 1));
    CHECK(rondo_all_reduce(part, values, values, count, RONDO_F32, RONDO_SUM, NULL, NULL) ==
          RONDO_OK);
    CHECK(all_are(values, count, 2));
    rondo_destroy(part);
  }
  float own[10];
  rondo_registration* registration = NULL;
  CHECK(rondo_register(c, own, sizeof own, &registration) == RONDO_OK && registration != NULL);
  fill(own, 10, 1);
  CHECK(rondo_all_reduce(c, own, own, 10, RONDO_F32, RONDO_SUM, NULL, NULL) == RONDO_OK);
  CHECK(all_are(own, 10, 3));
  rondo_deregister(registration);
  CHECK(rondo_barrier(c, NULL, NULL) == RONDO_OK);
  rondo_free(memory);
}

static void bad_input(rondo_communicator* c, int rank) {
  float value = 0;
  CHECK(rondo_all_reduce(NULL, &value, &value, 1, RONDO_F32, RONDO_SUM, NULL, NULL) ==
        RONDO_INVALID_ARGUMENT);
  CHECK(rondo_all_reduce(c, NULL, &value, 1, RONDO_F32, RONDO_SUM, NULL, NULL) ==
        RONDO_INVALID_ARGUMENT);
  CHECK(strstr(rondo_message(), "in.data is null") != NULL);
  CHECK(rondo_all_reduce(c, &value, &value, 1, (rondo_dtype)257, RONDO_SUM, NULL, NULL) ==
        RONDO_INVALID_ARGUMENT);
  CHECK(rondo_all_reduce(c, &value, &value, 1, RONDO_F32, RONDO_BIT_OR, NULL, NULL) ==
        RONDO_INVALID_ARGUMENT);
  CHECK(rondo_broadcast(c, &value, &value, 1, RONDO_F32, ranks, NULL, NULL) ==
        RONDO_INVALID_ARGUMENT);
  CHECK(rondo_all_gather(c, &value, &value, SIZE_MAX / 2, RONDO_F32, NULL, NULL) ==
        RONDO_INVALID_ARGUMENT);
  CHECK(rondo_all_gather_v(c, &value, &value, NULL, RONDO_F32, NULL, NULL) ==
        RONDO_INVALID_ARGUMENT);
  CHECK(rondo_batch(c, NULL, 3, NULL, NULL) == RONDO_INVALID_ARGUMENT);
  const rondo_call call = {0};
  CHECK(rondo_barrier(c, &call, NULL) == RONDO_INVALID_ARGUMENT);
  CHECK(strstr(rondo_message(), "sizeof(rondo_call)") != NULL);
  CHECK(rondo_connect(NULL, NULL) == RONDO_INVALID_ARGUMENT);
  rondo_options empty;
  memset(&empty, 0, sizeof empty);
  rondo_communicator* none = NULL;
  CHECK(rondo_connect(&empty, &none) == RONDO_INVALID_ARGUMENT && none == NULL);
  CHECK(strcmp(rondo_status_name(RONDO_PEER_LOST), "peer lost") == 0);
  CHECK(strcmp(rondo_status_name((rondo_status)99), "unknown") == 0);
  CHECK(rondo_size_of(RONDO_BF16) == 2 && rondo_size_of((rondo_dtype)256) == 0);
  CHECK(rondo_rank(NULL) == -1 && rondo_size(NULL) == 0 && rondo_data(NULL) == NULL);
  rondo_destroy(NULL);
  rondo_registration* registration = (rondo_registration*)&value;
  CHECK(rondo_register(c, NULL, 4, &registration) == RONDO_INVALID_ARGUMENT &&
        registration == NULL);
  CHECK(strstr(rondo_message(), "data is null") != NULL);
  CHECK(rondo_register(c, &value, 0, &registration) == RONDO_INVALID_ARGUMENT);
  CHECK(rondo_register(c, &value, (size_t)-1, &registration) == RONDO_INVALID_ARGUMENT);
  CHECK(rondo_register(c, &value, 4, NULL) == RONDO_INVALID_ARGUMENT);
  CHECK(rondo_register(NULL, &value, 4, &registration) == RONDO_INVALID_ARGUMENT);
  rondo_deregister(NULL);
  rondo_free(NULL);
  rondo_release(NULL);
  /* The communicator still works after all these errors. */
  value = (float)rank;
  CHECK(rondo_all_reduce(c, &value, &value, 1, RONDO_F32, RONDO_SUM, NULL, NULL) == RONDO_OK &&
        value == 3);
}

/* Counts the ranks that have reached a point for which another rank waits. */
typedef struct {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int ranks;
} counter;
static counter connected = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
static counter seen = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
static counter started[ranks - 1] = {{PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0},
                                     {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0}};

static void count_rank(counter* c) {
  pthread_mutex_lock(&c->mutex);
  ++c->ranks;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->mutex);
}

/* Waits, then resets the counter for the next use. */
static void wait_for_ranks(counter* c, int count_of_ranks) {
  pthread_mutex_lock(&c->mutex);
  while (c->ranks < count_of_ranks) pthread_cond_wait(&c->changed, &c->mutex);
  c->ranks = 0;
  pthread_mutex_unlock(&c->mutex);
}

static void late_rank(rondo_communicator* c, int rank) {
  float value = 1;
  if (rank == 0) {
    wait_for_ranks(&seen, ranks - 1);
    return;
  }
  rondo_call call = {0};
  call.bytes = sizeof call;
  call.deadline_ms = 300;
  rondo_request* request = NULL;
  int done = 5;
  CHECK(rondo_all_reduce(c, &value, &value, 1, RONDO_F32, RONDO_SUM, &call, &request) == RONDO_OK);
  CHECK(rondo_test(request, 0, &done) == RONDO_OK && done == 0);
  CHECK(rondo_test(request, 30000, &done) == RONDO_DEADLINE_EXCEEDED && done == 1);
  CHECK(strstr(rondo_message(), "rank 0 has not called") != NULL);
  count_rank(&seen);
}

typedef struct ending {
  counter ended;
  rondo_status status;
} ending;

static void on_end(void* context, rondo_status status) {
  ending* const end = context;
  end->status = status;
  count_rank(&end->ended);
}

static void shared_request(rondo_communicator* c, int rank) {
  ending first = {{PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0}, RONDO_SYSTEM};
  ending second = first;
  float value = 1;
  char text[64] = "before";
  int done = 5;
  if (rank != 0) wait_for_ranks(&started[rank - 1], 1);
  rondo_call call = {0};
  call.bytes = sizeof call;
  call.unattended = 1;
  rondo_request* request = NULL;
  CHECK(rondo_all_reduce(c, &value, &value, 1, RONDO_F32, RONDO_SUM, &call, &request) == RONDO_OK);
  rondo_retain(request);
  CHECK(rondo_on_done(request, on_end, &first) == RONDO_OK);
  if (rank == 0) {
    CHECK(rondo_poll(request, 0, &done) == RONDO_OK && done == 0);
    for (int i = 0; i < ranks - 1; ++i) count_rank(&started[i]);
  }
  wait_for_ranks(&first.ended, 1);
  CHECK(first.status == RONDO_OK && value == ranks);
  CHECK(rondo_poll(request, 0, &done) == RONDO_OK && done == 1);
  CHECK(rondo_on_done(request, on_end, &second) == RONDO_OK && second.status == RONDO_OK);
  CHECK(rondo_request_message(request, text, sizeof text) == RONDO_OK && text[0] == '\0');
  CHECK(rondo_wait(request) == RONDO_OK);
  rondo_release(request);

  rondo_retain(NULL);
  CHECK(rondo_poll(NULL, 0, &done) == RONDO_OK && done == 1);
  CHECK(rondo_poll(NULL, 0, NULL) == RONDO_INVALID_ARGUMENT);
  CHECK(rondo_on_done(NULL, NULL, NULL) == RONDO_INVALID_ARGUMENT);
  CHECK(rondo_request_message(NULL, text, 0) == RONDO_INVALID_ARGUMENT);
}

static void* abort_it(void* communicator) {
  rondo_abort_text(communicator, RONDO_CORRUPT, "batch 17 has no labels");
  return NULL;
}

static void aborted(rondo_communicator* c, int rank) {
  count_rank(&connected);
  if (rank == 2) { /* it does not call the barrier, which so cannot end */
    wait_for_ranks(&seen, ranks - 1);
    return;
  }
  rondo_request* request = NULL;
  CHECK(rondo_barrier(c, NULL, &request) == RONDO_OK);
  pthread_t thread;
  if (rank == 0) wait_for_ranks(&connected, ranks);
  if (rank == 0 && pthread_create(&thread, NULL, abort_it, c) != 0) abort();
  CHECK(rondo_wait(request) == RONDO_ABORTED);
  CHECK(strstr(rondo_message(),
               "rank 0 called abort: data from the wire is damaged: batch 17 has no labels") !=
        NULL);
  if (rank == 0) pthread_join(thread, NULL);
  count_rank(&seen);
}

static void says_of_itself(rondo_communicator* c, int rank) {
  char text[256], small[5];
  CHECK(rondo_algorithm(c, RONDO_ALL_REDUCE, 100, RONDO_F32, text, sizeof text) == RONDO_OK);
  CHECK(strcmp(text, "ring") == 0); /* from options.algorithm */
  CHECK(rondo_describe(c, RONDO_ALL_REDUCE, 100, RONDO_F32, text, sizeof text) == RONDO_OK);
  CHECK(strstr(text, "ring over tcp, segments of ") == text &&
        strstr(text, ", 2 in flight") != NULL);
  CHECK(rondo_describe(c, RONDO_ALL_REDUCE, 100, RONDO_F32, small, sizeof small) == RONDO_OK);
  CHECK(strcmp(small, "ring") == 0);
  CHECK(rondo_describe(c, RONDO_ALL_REDUCE, 100, (rondo_dtype)256, text, sizeof text) ==
        RONDO_INVALID_ARGUMENT);
  CHECK(rondo_describe(c, RONDO_ALL_REDUCE, 100, RONDO_F32, text, 0) == RONDO_INVALID_ARGUMENT);
  CHECK(rondo_describe_peer(c, (rank + 1) % ranks, text, sizeof text) == RONDO_OK);
  CHECK(strstr(text, "tcp") == text && strstr(text, "2 paths") != NULL);
  CHECK(rondo_describe_peer(c, ranks, text, sizeof text) == RONDO_INVALID_ARGUMENT);
  char path[64], line[32] = "";
  snprintf(path, sizeof path, "/tmp/rondo-c-%d.%d.dump", (int)getpid(), rank);
  CHECK(rondo_dump(c, path, text, sizeof text) == RONDO_OK && strcmp(text, path) == 0);
  FILE* file = fopen(path, "r");
  CHECK(file != NULL && fgets(line, sizeof line, file) != NULL);
  CHECK(strcmp(line, "rondo dump 1\n") == 0);
  if (file != NULL) fclose(file);
  remove(path);
  CHECK(rondo_dump(c, path, text, 0) == RONDO_INVALID_ARGUMENT && remove(path) != 0);
  CHECK(rondo_dump(c, "/no/such/folder/file", text, sizeof text) == RONDO_SYSTEM);
  CHECK(strstr(rondo_message(), "/no/such/folder/file") != NULL && text[0] == '\0');
  CHECK(rondo_address(c, text, sizeof text) == RONDO_OK);
  int local[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
  size_t count = 0;
  CHECK(rondo_local_ranks(c, NULL, 0, &count) == RONDO_OK && count == (size_t)ranks);
  CHECK(rondo_local_ranks(c, local, 2, &count) == RONDO_OK && count == (size_t)ranks);
  CHECK(local[0] == 0 && local[1] == 1 && local[2] == -1);
  CHECK(rondo_local_ranks(c, NULL, 2, &count) == RONDO_INVALID_ARGUMENT);
  CHECK(rondo_local_ranks(c, local, 2, NULL) == RONDO_INVALID_ARGUMENT);
  const char* colon = strrchr(text, ':');
  const int port = colon != NULL ? atoi(colon + 1) : 0;
  CHECK(port >= 23000 && port <= 31999); /* from options.port_first and port_last */
  float value = 1;
  CHECK(rondo_all_reduce(c, &value, &value, 1, RONDO_F32, RONDO_SUM, NULL, NULL) == RONDO_OK);
  rondo_statistics statistics;
  statistics.bytes = 0;
  CHECK(rondo_get_statistics(c, &statistics) == RONDO_INVALID_ARGUMENT);
  CHECK(strstr(rondo_message(), "sizeof(rondo_statistics)") != NULL);
  statistics.bytes = sizeof statistics;
  CHECK(rondo_get_statistics(c, &statistics) == RONDO_OK);
  CHECK(statistics.operations == 1 && statistics.frames_sent > 0 && statistics.bytes_sent > 0);
  CHECK(statistics.failures == 0 && statistics.waited_gpu_ns == 0);
  CHECK(statistics.waited_messages_ns == 0);
  rondo_late_rank late[8];
  memset(late, 0xff, sizeof late);
  CHECK(rondo_get_late_ranks(c, NULL, 0) == RONDO_OK);
  CHECK(rondo_get_late_ranks(c, NULL, 1) == RONDO_INVALID_ARGUMENT);
  CHECK(rondo_get_late_ranks(c, late, 8) == RONDO_OK);
  for (int i = 0; i < 8; ++i) CHECK((late[i].calls <= 1) == (i < ranks));
  CHECK(late[rondo_rank(c)].calls == 0 && late[rondo_rank(c)].waited_ns == 0);
  rondo_constants constants;
  constants.bytes = sizeof constants;
  CHECK(rondo_get_constants(c, &constants) == RONDO_OK);
  /* From constants_file. */
  CHECK(constants.host.latency_s == 0.25 && constants.network.seconds_per_byte == 0.001);
  uint16_t bits = (uint16_t)rank;
  CHECK(rondo_broadcast(c, &bits, &bits, 1, RONDO_U16, 2, NULL, NULL) == RONDO_OK && bits == 2);
  bits = 65530;
  CHECK(rondo_all_reduce(c, &bits, &bits, 1, RONDO_U16, RONDO_MEAN, NULL, NULL) == RONDO_OK && bits == 65530);
  int16_t least = (int16_t)(rank - 1);
  CHECK(rondo_all_reduce(c, &least, &least, 1, RONDO_I16, RONDO_MIN, NULL, NULL) == RONDO_OK && least == -1);
  CHECK(rondo_size_of(RONDO_I16) == 2 && rondo_size_of((rondo_dtype)(RONDO_I16 + 1)) == 0);
}

static char constants_file[64];
static const char constants_text[] =
    "{\"rondo_constants\": 1, \"reduce_seconds_per_byte\": 0.0005,"
    " \"host\": {\"latency_s\": 0.25, \"seconds_per_byte\": 0.0005, \"frame_s\": 0.5},"
    " \"network\": {\"latency_s\": 0.5, \"seconds_per_byte\": 0.001, \"frame_s\": 0.5}}";

static void say_much(rondo_options* options) {
  options->transports = "tcp";
  options->algorithm = "ring";
  options->connections = 2;
  options->port_first = 23000;
  options->port_last = 31999;
  options->constants = constants_file;
  options->segment_bytes = 64;
  options->depth = 2;
  options->staging_bytes = 1 << 20;
  options->host = "one";
  options->measure = 0;
}

/* Only rank 0 forks, while the others wait in the last barrier. */
static void abandoned(rondo_communicator* c, int rank) {
  rondo_abandon(NULL);
  rondo_abandon(c); /* no effect in the process that has connected */
  CHECK(rondo_barrier(c, NULL, NULL) == RONDO_OK);
  if (rank == 0) {
    const pid_t child = fork();
    if (child == 0) {
      rondo_abandon(c);
      const int refused = rondo_barrier(c, NULL, NULL) == RONDO_UNSUPPORTED;
      rondo_abort(c, RONDO_ABORTED);
      rondo_destroy(c);
      _exit(refused ? 0 : 1);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  }
  CHECK(rondo_barrier(c, NULL, NULL) == RONDO_OK);
}

/* Without a file, which does not exist. */
static const rondo_constants given_constants = {
    sizeof(rondo_constants), {0.125, 0, 0}, {0.5, 0, 0}, 0.0005};

static void give_constants(rondo_options* options) {
  options->constants = "/nowhere/at/all";
  options->plan_constants = &given_constants;
}

static void has_given_constants(rondo_communicator* c, int rank) {
  rondo_constants constants;
  constants.bytes = sizeof constants;
  CHECK(rondo_get_constants(c, &constants) == RONDO_OK);
  CHECK(constants.host.latency_s == 0.125 && constants.reduce_seconds_per_byte == 0.0005);
  CHECK(rank >= 0 && rondo_barrier(c, NULL, NULL) == RONDO_OK);
}

static void constants_of_another_size(void) {
  rondo_constants wrong = {0};
  rondo_options options;
  CHECK(rondo_options_init(&options) == RONDO_OK);
  options.rank = 0;
  options.size = 1;
  options.plan_constants = &wrong;
  rondo_communicator* communicator = NULL;
  CHECK(rondo_connect(&options, &communicator) == RONDO_INVALID_ARGUMENT && communicator == NULL);
  CHECK(strstr(rondo_message(), "options.plan_constants.bytes is 0") != NULL);
}

/* As of a program that was compiled with another version of the header. */
static void structs_of_other_versions(void) {
  struct {
    rondo_options options;
    uint64_t later;
  } newer = {{0}, 0};
  CHECK(rondo_options_init_bytes(&newer.options, sizeof newer) == RONDO_OK);
  newer.options.rank = 0;
  newer.options.size = 1;
  rondo_communicator* c = NULL;
  newer.later = 1;
  CHECK(rondo_connect(&newer.options, &c) == RONDO_INVALID_ARGUMENT && c == NULL);
  CHECK(strstr(rondo_message(), "a field that this version of Rondo does not know") != NULL);
  newer.later = 0;
  CHECK(rondo_connect(&newer.options, &c) == RONDO_OK);
  rondo_destroy(c);

  rondo_options options;
  CHECK(rondo_options_init_bytes(&options, 1 << 20) == RONDO_INVALID_ARGUMENT);
  memset(&options, 0x55, sizeof options);
  CHECK(rondo_options_init_bytes(&options, 3) == RONDO_INVALID_ARGUMENT);
  CHECK(options.bytes == 0x5555555555555555);
  rondo_status (*const old_init)(rondo_options*) = rondo_options_init; /* not the macro */
  CHECK(old_init(&options) == RONDO_OK);
  CHECK(options.rdma_gid_index == 0x55555555); /* nothing is written beyond the older struct */
  options.rank = 0;
  options.size = 1;
  CHECK(rondo_connect(&options, &c) == RONDO_OK);
  rondo_call call = {0};
  float value = 3;
  call.bytes = sizeof call - 4; /* no version has had it */
  CHECK(rondo_all_reduce(c, &value, &value, 1, RONDO_F32, RONDO_SUM, &call, NULL) ==
        RONDO_INVALID_ARGUMENT);
  struct {
    rondo_statistics statistics;
    uint64_t later;
  } more = {{0}, 7};
  more.statistics.bytes = sizeof more;
  CHECK(rondo_get_statistics(c, &more.statistics) == RONDO_OK && more.later == 7);
  CHECK(more.statistics.bytes == sizeof more.statistics);
  rondo_destroy(c);

  CHECK(rondo_options_init(&options) == RONDO_OK);
  options.rank = 0;
  options.size = 1;
  options.rdma_service_level = 16;
  CHECK(rondo_connect(&options, &c) == RONDO_INVALID_ARGUMENT);
  CHECK(strstr(rondo_message(), "rdma_service_level is 16") != NULL);
}

static int asked_three_times(void* asked) {
  return ++*(int*)asked >= 3;
}

/* No other rank comes. */
static void interrupted_by_the_program(const char* url) {
  for (int rank = 0; rank < 2; ++rank) {
    int asked = 0;
    rondo_options options;
    CHECK(rondo_options_init(&options) == RONDO_OK);
    options.rank = rank;
    options.size = 2;
    options.rendezvous = url;
    options.interrupted = asked_three_times;
    options.interrupted_context = &asked;
    rondo_communicator* communicator = NULL;
    CHECK(rondo_connect(&options, &communicator) == RONDO_ABORTED && communicator == NULL);
    CHECK(asked == 3 && strstr(rondo_message(), "the program ended the call, as on Ctrl-C") != NULL);
  }
}

static void stores_that_fail(void) {
  shared_store broken = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, "", "", 0, 1};
  const rondo_store store = {&broken, store_put, store_get}, half = {&broken, store_put, NULL};
  rondo_options options;
  CHECK(rondo_options_init(&options) == RONDO_OK);
  options.rank = 0;
  options.size = 2;
  options.store = &store;
  rondo_communicator* communicator = NULL;
  CHECK(rondo_connect(&options, &communicator) == RONDO_RENDEZVOUS);
  CHECK(strstr(rondo_message(), "77") != NULL);
  options.store = &half;
  CHECK(rondo_connect(&options, &communicator) == RONDO_INVALID_ARGUMENT && communicator == NULL);
}

int main(void) {
  alarm(240); /* nothing here may hang */
  char url[128];
  snprintf(url, sizeof url, "file:///tmp/rondo-c-api-%ld", (long)getpid());
  run_ranks(NULL, collectives);
  run_ranks(url, collectives);
  run_ranks(NULL, messages);
  run_ranks(NULL, from_any_rank);
  run_ranks(NULL, split_and_memory);
  run_ranks(NULL, bad_input);
  run_ranks(NULL, late_rank);
  run_ranks(NULL, shared_request);
  run_ranks(NULL, aborted);
  run_ranks(NULL, abandoned);
  snprintf(constants_file, sizeof constants_file, "/tmp/rondo-c-api-%ld.json", (long)getpid());
  FILE* file = fopen(constants_file, "w");
  if (file == NULL) abort();
  fputs(constants_text, file);
  fclose(file);
  run_with(NULL, says_of_itself, say_much);
  unlink(constants_file);
  run_with(NULL, has_given_constants, give_constants);
  constants_of_another_size();
  structs_of_other_versions();
  interrupted_by_the_program(url);
  stores_that_fail();
  printf("rondo %s: %d failures\n", rondo_version(), failures);
  return failures == 0 ? 0 : 1;
}
