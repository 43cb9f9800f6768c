/* SPDX-License-Identifier: Apache-2.0
 *
 * Rondo from C99, and from any language that can call C. The C++ headers say more about each operation; what differs is said here.
 *
 * Every function that can fail returns a rondo_status, and rondo_message() has the words. Operations take a `request`: NULL waits until the
 * operation is done, on the calling thread and without a hand-off; else the operation is started and *request is a handle to it, which
 * rondo_wait(), rondo_test() or rondo_release() takes back. Buffers stay borrowed until the operation ends.
 *
 *   rondo_communicator* c;
 *   if (rondo_connect(NULL, &c) != RONDO_OK) { fprintf(stderr, "%s\n", rondo_message()); exit(1); }
 *   if (rondo_all_reduce(c, in, out, count, RONDO_F32, RONDO_SUM, NULL, NULL) != RONDO_OK) fprintf(stderr, "%s\n", rondo_message());
 *   rondo_destroy(c);
 */
#ifndef RONDO_RONDO_H
#define RONDO_RONDO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RONDO_C_API __attribute__((visibility("default")))

typedef struct rondo_communicator rondo_communicator;
typedef struct rondo_request rondo_request;
typedef struct rondo_memory rondo_memory;

/* As rondo::Errc. */
typedef enum rondo_status {
  RONDO_OK = 0,
  RONDO_INVALID_ARGUMENT,
  RONDO_MISMATCH,
  RONDO_DEADLINE_EXCEEDED,
  RONDO_PEER_LOST,
  RONDO_PEER_LEFT,
  RONDO_ABORTED,
  RONDO_RENDEZVOUS,
  RONDO_AUTHENTICATION,
  RONDO_CORRUPT,
  RONDO_UNSUPPORTED,
  RONDO_SYSTEM,
  RONDO_STATUS_BITS = 0x7fffffff /* no status: it makes any int a possible value */
} rondo_status;

/* As rondo::DType. */
typedef enum rondo_dtype {
  RONDO_F64,
  RONDO_F32,
  RONDO_F16,
  RONDO_BF16,
  RONDO_F8E4M3,
  RONDO_F8E5M2,
  RONDO_I64,
  RONDO_U64,
  RONDO_I32,
  RONDO_U32,
  RONDO_I8,
  RONDO_U8,
  RONDO_DTYPE_BITS = 0x7fffffff /* no type */
} rondo_dtype;

/* As rondo::ReduceOp. */
typedef enum rondo_op {
  RONDO_SUM,
  RONDO_MEAN,
  RONDO_PRODUCT,
  RONDO_MIN,
  RONDO_MAX,
  RONDO_BIT_AND,
  RONDO_BIT_OR,
  RONDO_BIT_XOR,
  RONDO_OP_BITS = 0x7fffffff /* no operation */
} rondo_op;

/* "0.1.0" */
RONDO_C_API const char* rondo_version(void);
/* "mismatch"; "unknown" for a number that is no status. */
RONDO_C_API const char* rondo_status_name(rondo_status status);
/* What the last call that failed on this thread had to say; "" when none has. Valid until the next failure on this thread. */
RONDO_C_API const char* rondo_message(void);
/* Bytes of one element; 0 for a number that is no type. */
RONDO_C_API size_t rondo_size_of(rondo_dtype type);

/* A key-value store of the program's own, called from rondo_connect() on its thread. Keys and values are printable text without zeros.
 * Both return 0 when all is well. put keeps a copy of the value. get waits for the key for at most timeout_ms and writes value and a zero
 * into `value`, which has room for `capacity` bytes; it returns RONDO_DEADLINE_EXCEEDED when the key does not come in time. Any other
 * number is a failure, which rondo_message() passes on. */
typedef struct rondo_store {
  void* context;
  int (*put)(void* context, const char* key, const char* value);
  int (*get)(void* context, const char* key, char* value, size_t capacity, uint64_t timeout_ms);
} rondo_store;

/* How a communicator is made. rondo_options_init() makes one that says nothing: then everything comes from the environment when
 * rondo_connect() is called, as with rondo::Options::from_environment(). What is set takes precedence. Strings are read during
 * rondo_connect() only. */
typedef struct rondo_options {
  size_t bytes;             /* sizeof(rondo_options), set by rondo_options_init() */
  int rank;                 /* -1: from the launcher's variables */
  int size;                 /* 0: likewise */
  const char* rendezvous;   /* "tcp://host:port", "file:///path" or "env://" */
  const rondo_store* store; /* used instead of the rendezvous when not NULL */
  const char* secret;
  uint64_t connect_deadline_ms;
  uint64_t deadline_ms;   /* of an operation, unless its call says otherwise */
  const char* transports; /* "shm,tcp": those allowed */
  const char* interfaces; /* "eth0,10.0.0.0/8" */
  const char* algorithm;
  int reproducible; /* not 0: on */
  int checksum;     /* not 0: on */
} rondo_options;

RONDO_C_API rondo_status rondo_options_init(rondo_options* options);
/* options NULL: all from the environment. */
RONDO_C_API rondo_status rondo_connect(const rondo_options* options, rondo_communicator** communicator);
/* Ends pending operations with RONDO_ABORTED; bounded. NULL is fine. */
RONDO_C_API void rondo_destroy(rondo_communicator* communicator);
RONDO_C_API int rondo_rank(const rondo_communicator* communicator);
RONDO_C_API int rondo_size(const rondo_communicator* communicator);
/* A communicator of the ranks with the same color, ordered by key; *part is NULL where the color is negative. Called by all ranks. */
RONDO_C_API rondo_status rondo_split(rondo_communicator* communicator, int color, int key,
                                     rondo_communicator** part);
/* Ends every pending operation on every rank with this cause. From any thread. */
RONDO_C_API void rondo_abort(rondo_communicator* communicator, rondo_status why);

/* Memory in a window: ranks of one host work on it without copies. It may outlive the communicator. */
RONDO_C_API rondo_status rondo_allocate(rondo_communicator* communicator, size_t bytes,
                                        rondo_memory** memory);
RONDO_C_API void* rondo_data(const rondo_memory* memory);
/* Not while an operation uses it. NULL is fine. */
RONDO_C_API void rondo_free(rondo_memory* memory);

/* How one operation runs; NULL stands for all zeros. All ranks must agree on urgent and scale. */
typedef struct rondo_call {
  size_t bytes;         /* sizeof(rondo_call) */
  uint64_t deadline_ms; /* for the whole operation; 0: that of the communicator */
  int urgent;           /* not 0: the lane for small messages that must not queue behind buckets */
  int has_scale;        /* not 0: the result of a reduction is multiplied by scale, once */
  double scale;
  const char* tag; /* appears in messages; NULL: none */
} rondo_call;

/* Collectives. `count` is that of the smaller buffer, the block of one rank, unless said otherwise; the larger buffer has size * count
 * elements. In place as in C++. A buffer that this rank does not use may be NULL. */
RONDO_C_API rondo_status rondo_all_reduce(rondo_communicator* communicator, const void* in, void* out,
                                          size_t count, rondo_dtype type, rondo_op op, const rondo_call* call,
                                          rondo_request** request);
RONDO_C_API rondo_status rondo_reduce(rondo_communicator* communicator, const void* in, void* out,
                                      size_t count, rondo_dtype type, rondo_op op, int root,
                                      const rondo_call* call, rondo_request** request);
RONDO_C_API rondo_status rondo_broadcast(rondo_communicator* communicator, const void* in, void* out,
                                         size_t count, rondo_dtype type, int root, const rondo_call* call,
                                         rondo_request** request);
RONDO_C_API rondo_status rondo_all_gather(rondo_communicator* communicator, const void* in, void* out,
                                          size_t count, rondo_dtype type, const rondo_call* call,
                                          rondo_request** request);
RONDO_C_API rondo_status rondo_reduce_scatter(rondo_communicator* communicator, const void* in, void* out,
                                              size_t count, rondo_dtype type, rondo_op op,
                                              const rondo_call* call, rondo_request** request);
RONDO_C_API rondo_status rondo_gather(rondo_communicator* communicator, const void* in, void* out,
                                      size_t count, rondo_dtype type, int root, const rondo_call* call,
                                      rondo_request** request);
RONDO_C_API rondo_status rondo_scatter(rondo_communicator* communicator, const void* in, void* out,
                                       size_t count, rondo_dtype type, int root, const rondo_call* call,
                                       rondo_request** request);
/* count: of one block; both buffers have size * count elements. */
RONDO_C_API rondo_status rondo_all_to_all(rondo_communicator* communicator, const void* in, void* out,
                                          size_t count, rondo_dtype type, const rondo_call* call,
                                          rondo_request** request);
/* counts: one for each rank, the same on all; not needed after the call. */
RONDO_C_API rondo_status rondo_all_gather_v(rondo_communicator* communicator, const void* in, void* out,
                                            const size_t* counts, rondo_dtype type, const rondo_call* call,
                                            rondo_request** request);
RONDO_C_API rondo_status rondo_reduce_scatter_v(rondo_communicator* communicator, const void* in, void* out,
                                                const size_t* counts, rondo_dtype type, rondo_op op,
                                                const rondo_call* call, rondo_request** request);
/* Of this rank: what it sends to each, what it receives from each. */
RONDO_C_API rondo_status rondo_all_to_all_v(rondo_communicator* communicator, const void* in,
                                            const size_t* send_counts, void* out,
                                            const size_t* receive_counts, rondo_dtype type,
                                            const rondo_call* call, rondo_request** request);
RONDO_C_API rondo_status rondo_barrier(rondo_communicator* communicator, const rondo_call* call,
                                       rondo_request** request);

/* Messages between two ranks, matched in order by peer and tag. */
RONDO_C_API rondo_status rondo_send(rondo_communicator* communicator, const void* in, size_t count,
                                    rondo_dtype type, int peer, uint32_t tag, const rondo_call* call,
                                    rondo_request** request);
RONDO_C_API rondo_status rondo_receive(rondo_communicator* communicator, void* out, size_t count,
                                       rondo_dtype type, int peer, uint32_t tag, const rondo_call* call,
                                       rondo_request** request);
/* Many at once, in any order, with one request. */
typedef struct rondo_transfer {
  int receive; /* 0: send */
  void* data;
  size_t count;
  rondo_dtype type;
  int peer;
  uint32_t tag;
} rondo_transfer;
RONDO_C_API rondo_status rondo_batch(rondo_communicator* communicator, const rondo_transfer* transfers,
                                     size_t transfer_count, const rondo_call* call, rondo_request** request);

/* Waits until the operation ends, says how, and frees the request. NULL: RONDO_OK. */
RONDO_C_API rondo_status rondo_wait(rondo_request* request);
/* Waits for at most timeout_ms (0: only looks). When the operation has ended *done is 1 and the request is freed; else *done is 0, the
 * answer is RONDO_OK and the request stays. */
RONDO_C_API rondo_status rondo_test(rondo_request* request, uint64_t timeout_ms, int* done);
/* Frees the request; the operation runs on, and its buffers stay borrowed until it ends. */
RONDO_C_API void rondo_release(rondo_request* request);

#ifdef __cplusplus
}
#endif

#endif
