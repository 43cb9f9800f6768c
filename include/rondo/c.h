/* SPDX-License-Identifier: Apache-2.0
 *
 * Rondo from C99, and from any language that can call C. The C++ headers say more about each
 * operation; this header says what differs.
 *
 * Every function that can fail returns a rondo_status; rondo_message() has the text. An operation
 * takes a `request`. With NULL the call returns when the operation is done; the calling thread
 * drives it. Else the call starts the operation, and *request becomes a handle to it, or NULL if it
 * has ended well already; the functions for requests take NULL for such an operation. Give each
 * handle back once: to rondo_wait(), rondo_test() or rondo_release(); rondo_retain() makes it one
 * more time. Buffers stay borrowed until the operation ends. Threads: as in C++. Buffers are in
 * host memory unless rondo_call.has_device says otherwise.
 *
 *     rondo_communicator* c;
 *     if (rondo_connect(NULL, &c) != RONDO_OK) {
 *       fprintf(stderr, "%s\n", rondo_message());
 *       exit(1);
 *     }
 *     if (rondo_all_reduce(c, in, out, count, RONDO_F32, RONDO_SUM, NULL, NULL) != RONDO_OK)
 *       fprintf(stderr, "%s\n", rondo_message());
 *     rondo_destroy(c);
 */
#ifndef RONDO_C_H
#define RONDO_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RONDO_C_API __attribute__((visibility("default")))

typedef struct rondo_communicator rondo_communicator;
typedef struct rondo_request rondo_request;
typedef struct rondo_memory rondo_memory;
typedef struct rondo_registration rondo_registration;

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
  RONDO_STATUS_BITS = 0x7fffffff /* not a status: it makes every int a valid value */
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
  RONDO_U16,
  RONDO_I16,
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

/* As rondo::Collective. */
typedef enum rondo_collective {
  RONDO_ALL_REDUCE,
  RONDO_REDUCE,
  RONDO_BROADCAST,
  RONDO_ALL_GATHER,
  RONDO_REDUCE_SCATTER,
  RONDO_BARRIER,
  RONDO_GATHER,
  RONDO_SCATTER,
  RONDO_ALL_TO_ALL,
  RONDO_ALL_GATHER_V,
  RONDO_REDUCE_SCATTER_V,
  RONDO_ALL_TO_ALL_V,
  RONDO_SEND,
  RONDO_RECEIVE,
  RONDO_COLLECTIVE_BITS = 0x7fffffff /* no operation */
} rondo_collective;

/* "0.1.0" */
RONDO_C_API const char* rondo_version(void);
/* "mismatch"; "unknown" for a number that is no status. */
RONDO_C_API const char* rondo_status_name(rondo_status status);
/* The message of the last call that failed on this thread, cut after 2047 bytes; "" if none has
 * failed. Valid until the next failure on this thread. */
RONDO_C_API const char* rondo_message(void);
/* Bytes of one element; 0 for a number that is no type. */
RONDO_C_API size_t rondo_size_of(rondo_dtype type);

/* A key-value store of the program. Its functions run on the thread that calls rondo_connect().
 * Keys and values are printable text without zeros. Both functions return 0 for success. put must
 * copy the value. get waits for the key for at most timeout_ms. Then it writes the value and a
 * final zero into `value`, which has room for `capacity` bytes. If the key does not come in time,
 * get returns RONDO_DEADLINE_EXCEEDED. Any other number is a failure; rondo_connect() fails with
 * RONDO_RENDEZVOUS, and rondo_message() has the number. */
typedef struct rondo_store {
  void* context;
  int (*put)(void* context, const char* key, const char* value);
  int (*get)(void* context, const char* key, char* value, size_t capacity, uint64_t timeout_ms);
} rondo_store;

/* Structs whose first field is `bytes` may grow at their end. A program that was compiled with an
 * older rondo/c.h is served: the fields that it does not have are not set. One that was compiled
 * with a newer one is served as long as it sets no field that this library does not know. */

/* How a communicator is made. Call rondo_options_init() first: it leaves every field not set. Every
 * field follows one rule, as in rondo::Options: the value set here comes first, then Rondo's
 * variable, then the launcher's, then the default. Strings are read during rondo_connect() only. */
typedef struct rondo_options {
  size_t bytes;             /* sizeof(rondo_options), set by rondo_options_init() */
  int rank;                 /* -1: not set */
  int size;                 /* 0: not set */
  const char* rendezvous;   /* "tcp://host:port", "file:///path" or "env://" */
  const rondo_store* store; /* if not NULL, used instead of the rendezvous */
  const char* secret;
  uint64_t connect_deadline_ms; /* 0: not set */
  uint64_t deadline_ms;         /* of an operation, unless its call has one; 0: not set */
  const char* transports;       /* allowed ones: "shm,tcp" */
  const char* interfaces;       /* "eth0,10.0.0.0/8" */
  const char* algorithm;
  int reproducible;    /* -1: not set, 0: off, else on */
  int checksum;        /* likewise */
  int connections;     /* TCP connections between two interfaces, 1 to 16; 0: not set */
  uint16_t port_first; /* listening ports; 0: not set */
  uint16_t port_last;
  const char* host;      /* ranks with the same text count as ranks of one host */
  const char* constants; /* a file of constants for the planner */
  int measure;           /* whether rondo_connect() measures links: -1: not set, 0: no, else yes */
  size_t segment_bytes;  /* unit of pipelining; 0: not set */
  int depth;             /* segments in flight; 0: not set */
  size_t staging_bytes;  /* most staging memory; 0: not set */
  const char* integrity; /* "headers" or "payload": what the secret protects between hosts */
  int ranks_on_host;     /* ranks that share this host's cores, all communicators; 0: not set */
  const char* wait;      /* "auto", "spin" or "sleep": how this rank waits for others */
  /* The planner's constants themselves, which come before the file. NULL: not set. */
  const struct rondo_constants* plan_constants;
  const char* metrics;        /* a file for Prometheus: see docs/reference/metrics.md */
  uint64_t metrics_period_ms; /* 0: not set */
  const char* metrics_labels; /* "run=mine,team=vision" */
  /* Called about ten times a second while rondo_connect() or rondo_split() waits, on the thread
   * that waits. If it returns anything but 0, the call ends with RONDO_ABORTED, also on the ranks
   * that it has reached. It must stay valid as long as the communicator. NULL: not called. */
  int (*interrupted)(void* context);
  void* interrupted_context;
  const char* rdma_devices; /* "mlx5_0,mlx5_1:2"; also "^mlx5_2" */
  int rdma_gid_index;       /* -1: not set */
  int rdma_grants;          /* whether peers may write straight to buffers: -1: not set, 0: no */
  int rdma_traffic_class;   /* 0 to 255; -1: not set */
  int rdma_service_level;   /* 0 to 15; -1: not set */
} rondo_options;

/* bytes: the size of the caller's rondo_options. */
RONDO_C_API rondo_status rondo_options_init_bytes(rondo_options* options, size_t bytes);
/* The function is for programs that were compiled with the first version of this header, and for
 * other languages: it sets the fields of that version. */
RONDO_C_API rondo_status rondo_options_init(rondo_options* options);
#define rondo_options_init(options) rondo_options_init_bytes((options), sizeof *(options))
/* Joins the other ranks. options NULL: everything comes from the environment. */
RONDO_C_API rondo_status rondo_connect(const rondo_options* options,
                                       rondo_communicator** communicator);
/* Ends pending operations with RONDO_ABORTED. Returns within two seconds: see ~Communicator. NULL
 * is allowed. */
RONDO_C_API void rondo_destroy(rondo_communicator* communicator);
RONDO_C_API int rondo_rank(const rondo_communicator* communicator);
RONDO_C_API int rondo_size(const rondo_communicator* communicator);
/* Writes the first `capacity` ranks on this rank's host to `ranks`, with this one, ascending.
 * *count becomes the number of all of them. ranks may be NULL if capacity is 0. */
RONDO_C_API rondo_status rondo_local_ranks(const rondo_communicator* communicator, int* ranks,
                                           size_t capacity, size_t* count);
/* Makes a communicator of the ranks with the same color, ordered by key; *part becomes NULL if the
 * color is negative. All ranks must call it. */
RONDO_C_API rondo_status rondo_split(rondo_communicator* communicator, int color, int key,
                                     rondo_communicator** part);
/* Ends every pending operation on every rank with this cause. Thread-safe. */
RONDO_C_API void rondo_abort(rondo_communicator* communicator, rondo_status why);
/* The same with a text of the program. The message on every rank has its first 1000 bytes; control
 * characters, and bytes that are not UTF-8, become blanks. NULL: no text. */
RONDO_C_API void rondo_abort_text(rondo_communicator* communicator, rondo_status why,
                                  const char* text);
/* In a forked child: closes the descriptors of all communicators of the parent. After fork() this
 * has happened already; children of clone() and _Fork() call it before they do anything else with
 * Rondo. Operations then return RONDO_UNSUPPORTED, and rondo_destroy() frees no connection. Takes
 * no lock. In the process that connected it does nothing. NULL is allowed. See
 * Communicator::abandon. */
RONDO_C_API void rondo_abandon(rondo_communicator* communicator);

/* The next five write text and a final zero into `text`, which has room for `capacity` bytes.
 * Longer text is cut. Thread-safe. */

/* "ring over tcp, segments of 1 MiB, 4 in flight": what the planner chooses for a call with `count`
 * elements. */
RONDO_C_API rondo_status rondo_describe(rondo_communicator* communicator,
                                        rondo_collective operation, size_t count, rondo_dtype type,
                                        char* text, size_t capacity);
/* The name of the algorithm alone: "ring". */
RONDO_C_API rondo_status rondo_algorithm(rondo_communicator* communicator,
                                         rondo_collective operation, size_t count, rondo_dtype type,
                                         char* text, size_t capacity);
/* How a rank is reached: "tcp, 2 paths: 10.1.0.1 -> 10.1.0.2 (eth0) ..."; empty for this rank. */
RONDO_C_API rondo_status rondo_describe_peer(rondo_communicator* communicator, int peer, char* text,
                                             size_t capacity);
/* Writes a dump to the file, or to the folder of dumps if path is NULL. Text: the path of the file.
 * See Communicator::dump. */
RONDO_C_API rondo_status rondo_dump(rondo_communicator* communicator, const char* path, char* text,
                                    size_t capacity);
/* Where this rank's data connections from other hosts arrive: "host:port". */
RONDO_C_API rondo_status rondo_address(rondo_communicator* communicator, char* text,
                                       size_t capacity);

/* Counters since rondo_connect(). Bytes are payload bytes of this rank. Times are those in which
 * the oldest operation was under way, by what it waited for: rondo::WaitCause says what each means.
 */
typedef struct rondo_statistics {
  size_t bytes; /* sizeof(rondo_statistics), set by the caller */
  uint64_t operations;
  uint64_t frames_sent;
  uint64_t frames_received;
  uint64_t bytes_sent;
  uint64_t bytes_received;
  uint64_t staging_bytes;   /* held now */
  uint64_t failures;        /* operations that ended with an error */
  uint64_t segments_sent;   /* TCP segments with data, over the open connections */
  uint64_t segments_resent; /* those of them that the network had lost */
  uint64_t waited_ranks_ns;
  uint64_t waited_transfer_ns;
  uint64_t waited_gpu_ns;
  uint64_t waited_messages_ns;
} rondo_statistics;
RONDO_C_API rondo_status rondo_get_statistics(rondo_communicator* communicator,
                                              rondo_statistics* statistics);

/* How often this rank has waited for another one alone, and how long: see rondo::LateRank. Writes
 * the first `capacity` of rondo_size() ranks, in their order. late may be NULL if capacity is 0. */
typedef struct rondo_late_rank {
  uint64_t calls;
  uint64_t waited_ns;
} rondo_late_rank;
RONDO_C_API rondo_status rondo_get_late_ranks(rondo_communicator* communicator,
                                              rondo_late_rank* late, size_t capacity);

/* The planner's constants, the same on all ranks: in seconds, and seconds for each byte. */
typedef struct rondo_link_costs {
  double latency_s;
  double seconds_per_byte;
  double frame_s;
} rondo_link_costs;
typedef struct rondo_constants {
  size_t bytes; /* sizeof(rondo_constants), set by the caller */
  rondo_link_costs host;
  rondo_link_costs network;
  double reduce_seconds_per_byte;
} rondo_constants;
RONDO_C_API rondo_status rondo_get_constants(rondo_communicator* communicator,
                                             rondo_constants* constants);

/* Allocates memory in a window: ranks of one host work on it without copies. It may outlive the
 * communicator. */
RONDO_C_API rondo_status rondo_allocate(rondo_communicator* communicator, size_t bytes,
                                        rondo_memory** memory);
/* Allocates memory of GPU `device`, which counts from 0 as CUDA does; the memory is zeroed. Fails
 * with RONDO_UNSUPPORTED where there is no CUDA driver, and with RONDO_INVALID_ARGUMENT where there
 * is no such GPU. */
RONDO_C_API rondo_status rondo_allocate_on(rondo_communicator* communicator, size_t bytes,
                                           int device, rondo_memory** memory);
/* The address, for CUDA and for operations; the CPU must not touch memory of a GPU. NULL for NULL.
 */
RONDO_C_API void* rondo_data(const rondo_memory* memory);
/* Not while an operation uses the memory. NULL is allowed. */
RONDO_C_API void rondo_free(rondo_memory* memory);
/* Makes memory of the program known to the transports, until rondo_deregister(): see
 * Communicator::register_memory. Memory from rondo_allocate() is registered already. */
RONDO_C_API rondo_status rondo_register(rondo_communicator* communicator, void* data, size_t bytes,
                                        rondo_registration** registration);
/* The same for memory of GPU `device`, which counts from 0 as CUDA does. */
RONDO_C_API rondo_status rondo_register_on(rondo_communicator* communicator, void* data,
                                           size_t bytes, int device,
                                           rondo_registration** registration);
/* Call it before the memory is freed, and not while an operation uses it. It may come after
 * rondo_destroy(). NULL is allowed. */
RONDO_C_API void rondo_deregister(rondo_registration* registration);

/* How one operation runs. NULL: all zeros. All ranks must give the same urgent and scale; the other
 * fields may differ.
 *
 * For buffers on a GPU:
 *     rondo_call call = {0};
 *     call.bytes = sizeof call;
 *     call.has_device = 1;
 *     call.device = 0;
 *     call.stream = stream;
 *     rondo_request* request;
 *     rondo_all_reduce(c, in, out, count, RONDO_F32, RONDO_SUM, &call, &request);
 *     rondo_join(request, stream);
 *     rondo_release(request);
 * Wrong: rondo_join() alone, because the request stays, and so does its memory. */
typedef struct rondo_call {
  size_t bytes;         /* sizeof(rondo_call) */
  uint64_t deadline_ms; /* for the whole operation; 0: that of the communicator */
  int urgent;           /* not 0: the lane for small messages that must not queue behind buckets */
  int has_scale;        /* not 0: the result of a reduction is multiplied by scale, once */
  double scale;
  const char* tag;     /* appears in messages; NULL: none */
  int unattended;      /* not 0: nobody will wait soon, the background thread drives at once */
  int has_input_scale; /* not 0: this rank's input is multiplied by input_scale as it is loaded, */
  double input_scale;  /* for sum and mean of floating-point types: see rondo::OpOptions */
  int has_device;      /* not 0: all buffers of the call are in memory of GPU `device`, */
  int device;          /* which counts from 0 as CUDA does; 0: they are in host memory */
  void* stream;        /* CUDA stream that orders the operation: it begins after what the stream */
                       /* has now; NULL: the default stream. Host buffers ignore it */
} rondo_call;

/* Collectives. Unless a comment says otherwise, `count` is that of the smaller buffer, the block of
 * one rank; the larger buffer has size * count elements. In place as in C++. A buffer that this
 * rank does not use may be NULL. */
RONDO_C_API rondo_status rondo_all_reduce(rondo_communicator* communicator, const void* in,
                                          void* out, size_t count, rondo_dtype type, rondo_op op,
                                          const rondo_call* call, rondo_request** request);
RONDO_C_API rondo_status rondo_reduce(rondo_communicator* communicator, const void* in, void* out,
                                      size_t count, rondo_dtype type, rondo_op op, int root,
                                      const rondo_call* call, rondo_request** request);
RONDO_C_API rondo_status rondo_broadcast(rondo_communicator* communicator, const void* in,
                                         void* out, size_t count, rondo_dtype type, int root,
                                         const rondo_call* call, rondo_request** request);
RONDO_C_API rondo_status rondo_all_gather(rondo_communicator* communicator, const void* in,
                                          void* out, size_t count, rondo_dtype type,
                                          const rondo_call* call, rondo_request** request);
RONDO_C_API rondo_status rondo_reduce_scatter(rondo_communicator* communicator, const void* in,
                                              void* out, size_t count, rondo_dtype type,
                                              rondo_op op, const rondo_call* call,
                                              rondo_request** request);
RONDO_C_API rondo_status rondo_gather(rondo_communicator* communicator, const void* in, void* out,
                                      size_t count, rondo_dtype type, int root,
                                      const rondo_call* call, rondo_request** request);
RONDO_C_API rondo_status rondo_scatter(rondo_communicator* communicator, const void* in, void* out,
                                       size_t count, rondo_dtype type, int root,
                                       const rondo_call* call, rondo_request** request);
/* count is that of one block; both buffers have size * count elements. */
RONDO_C_API rondo_status rondo_all_to_all(rondo_communicator* communicator, const void* in,
                                          void* out, size_t count, rondo_dtype type,
                                          const rondo_call* call, rondo_request** request);
/* counts has one element for each rank, and all ranks give the same. Not needed after the call. */
RONDO_C_API rondo_status rondo_all_gather_v(rondo_communicator* communicator, const void* in,
                                            void* out, const size_t* counts, rondo_dtype type,
                                            const rondo_call* call, rondo_request** request);
RONDO_C_API rondo_status rondo_reduce_scatter_v(rondo_communicator* communicator, const void* in,
                                                void* out, const size_t* counts, rondo_dtype type,
                                                rondo_op op, const rondo_call* call,
                                                rondo_request** request);
/* Both counts have one element for each rank: what this rank sends to it or receives from it. */
RONDO_C_API rondo_status rondo_all_to_all_v(rondo_communicator* communicator, const void* in,
                                            const size_t* send_counts, void* out,
                                            const size_t* receive_counts, rondo_dtype type,
                                            const rondo_call* call, rondo_request** request);
RONDO_C_API rondo_status rondo_barrier(rondo_communicator* communicator, const rondo_call* call,
                                       rondo_request** request);

/* Messages between two ranks, matched in order by peer and tag. */
RONDO_C_API rondo_status rondo_send(rondo_communicator* communicator, const void* in, size_t count,
                                    rondo_dtype type, int peer, uint32_t tag,
                                    const rondo_call* call, rondo_request** request);
RONDO_C_API rondo_status rondo_receive(rondo_communicator* communicator, void* out, size_t count,
                                       rondo_dtype type, int peer, uint32_t tag,
                                       const rondo_call* call, rondo_request** request);
/* As rondo_receive, from whichever rank has a message with this tag: see
 * rondo::Communicator::receive_any. rondo_source() says which it was. */
RONDO_C_API rondo_status rondo_receive_any(rondo_communicator* communicator, void* out,
                                           size_t count, rondo_dtype type, uint32_t tag,
                                           const rondo_call* call, rondo_request** request);
/* Many sends and receives at once, listed in any order, with one request. rondo_call.device holds
 * for all of them. */
typedef struct rondo_transfer {
  int receive; /* 0: send */
  void* data;
  size_t count;
  rondo_dtype type;
  int peer;
  uint32_t tag;
} rondo_transfer;
RONDO_C_API rondo_status rondo_batch(rondo_communicator* communicator,
                                     const rondo_transfer* transfers, size_t transfer_count,
                                     const rondo_call* call, rondo_request** request);

/* Waits until the operation ends, returns its status and frees the request. NULL: RONDO_OK. */
RONDO_C_API rondo_status rondo_wait(rondo_request* request);
/* Waits for at most timeout_ms (0: only looks). If the operation has ended, *done becomes 1, the
 * request is freed and the status is that of the operation. Else *done becomes 0, the status is
 * RONDO_OK and the request stays. */
RONDO_C_API rondo_status rondo_test(rondo_request* request, uint64_t timeout_ms, int* done);
/* For buffers on a GPU: makes the CUDA stream wait for the end of the operation. What is enqueued
 * there afterwards finds the result. Blocks the host only until the last copy is enqueued. A
 * failure after that is seen by rondo_wait(), rondo_poll() and later operations. For host buffers
 * it waits for the operation. Never frees the request. NULL: RONDO_OK. See Work::join. */
RONDO_C_API rondo_status rondo_join(rondo_request* request, void* stream);
/* Frees the request. The operation continues; its buffers stay borrowed until it ends. */
RONDO_C_API void rondo_release(rondo_request* request);

/* For bindings, whose handles are shared. Each of the next five may be called by any thread that
 * has the handle, also while others wait for the operation. NULL: an operation that is done. */

/* Lets the handle be given back one more time. */
RONDO_C_API void rondo_retain(rondo_request* request);
/* As rondo_test(), but never frees the request: it drives for at most timeout_ms (0: only looks).
 * The status is that of the operation, if *done becomes 1. */
RONDO_C_API rondo_status rondo_poll(rondo_request* request, uint64_t timeout_ms, int* done);
/* The rank from which a receive got its message. -1 while it runs, after a failure and for other
 * operations. Ask before the handle is given back: poll, ask, release. */
RONDO_C_API int rondo_source(rondo_request* request);
/* Writes the message of an operation that has failed, as rondo_describe() writes text: empty while
 * it runs and after success. */
RONDO_C_API rondo_status rondo_request_message(rondo_request* request, char* text, size_t capacity);
/* Calls function(context, status) once when the operation ends, on the thread that ends it; at
 * once, on this thread, if it has ended. Functions that were given before the end are called in the
 * order in which they were given. The function must not block and must not start operations. */
RONDO_C_API rondo_status rondo_on_done(rondo_request* request,
                                       void (*function)(void* context, rondo_status status),
                                       void* context);

#ifdef __cplusplus
}
#endif

#endif
