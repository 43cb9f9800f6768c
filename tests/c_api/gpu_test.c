/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers on a GPU through the C API, from a C99 program. It uses CUDA's driver as a program would:
 * a real one, or the fake of tests/device/fake. Without an argument it expects a GPU. With "none"
 * it expects that there is no driver, and skips where there is one.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <rondo/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

/* ---- CUDA's driver ---- */

static struct {
  int (*init)(unsigned);
  int (*retain)(void**, int);
  int (*release)(int);
  int (*push)(void*);
  int (*pop)(void**);
  int (*host_allocate)(void**, size_t, unsigned);
  int (*host_free)(void*);
  int (*to_device)(uint64_t, const void*, size_t, void*);
  int (*to_host)(void*, uint64_t, size_t, void*);
  int (*stream_create)(void**, unsigned, int);
  int (*stream_destroy)(void*);
  int (*event_create)(void**, unsigned);
  int (*event_destroy)(void*);
  int (*event_record)(void*, void*);
  int (*event_query)(void*);
} cuda;

/* ISO C has no cast from void* to a function. */
static void find(void* library, const char* name, void* function) {
  void* const found = dlsym(library, name);
  if (found == NULL) {
    fprintf(stderr, "the CUDA driver has no %s\n", name);
    exit(1);
  }
  memcpy(function, &found, sizeof found);
}

static void load_cuda(void) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "there is no CUDA driver: %s\n", dlerror());
    exit(1);
  }
  find(library, "cuInit", &cuda.init);
  find(library, "cuDevicePrimaryCtxRetain", &cuda.retain);
  find(library, "cuDevicePrimaryCtxRelease_v2", &cuda.release);
  find(library, "cuCtxPushCurrent_v2", &cuda.push);
  find(library, "cuCtxPopCurrent_v2", &cuda.pop);
  find(library, "cuMemHostAlloc", &cuda.host_allocate);
  find(library, "cuMemFreeHost", &cuda.host_free);
  find(library, "cuMemcpyHtoDAsync_v2", &cuda.to_device);
  find(library, "cuMemcpyDtoHAsync_v2", &cuda.to_host);
  find(library, "cuStreamCreateWithPriority", &cuda.stream_create);
  find(library, "cuStreamDestroy_v2", &cuda.stream_destroy);
  find(library, "cuEventCreate", &cuda.event_create);
  find(library, "cuEventDestroy_v2", &cuda.event_destroy);
  find(library, "cuEventRecord", &cuda.event_record);
  find(library, "cuEventQuery", &cuda.event_query);
  CHECK(cuda.init(0) == 0);
}

/* What a rank uses of GPU 0: a stream, and pinned memory for `count` floats. */
typedef struct {
  void *context, *stream, *event;
  float* pinned;
} on_gpu;

static void begin_gpu(on_gpu* gpu) {
  void* pinned = NULL;
  CHECK(cuda.retain(&gpu->context, 0) == 0 && cuda.push(gpu->context) == 0);
  CHECK(cuda.stream_create(&gpu->stream, 1, 0) == 0); /* CU_STREAM_NON_BLOCKING */
  CHECK(cuda.event_create(&gpu->event, 2) == 0);      /* CU_EVENT_DISABLE_TIMING */
  CHECK(cuda.host_allocate(&pinned, count * sizeof(float), 1) == 0);
  gpu->pinned = pinned;
}

/* Waits until everything in the stream has ended. */
static void finish(on_gpu* gpu) {
  CHECK(cuda.event_record(gpu->event, gpu->stream) == 0);
  int status = 600; /* CUDA_ERROR_NOT_READY */
  while (status == 600) status = cuda.event_query(gpu->event);
  CHECK(status == 0);
}

static void end_gpu(on_gpu* gpu) {
  void* popped = NULL;
  CHECK(cuda.host_free(gpu->pinned) == 0);
  CHECK(cuda.event_destroy(gpu->event) == 0 && cuda.stream_destroy(gpu->stream) == 0);
  CHECK(cuda.pop(&popped) == 0 && cuda.release(0) == 0);
}

/* Enqueues copies on the stream, and waits for neither. */
static void write_values(on_gpu* gpu, void* to, float value) {
  for (int i = 0; i < count; ++i) gpu->pinned[i] = value;
  CHECK(cuda.to_device((uint64_t)(uintptr_t)to, gpu->pinned, count * sizeof(float), gpu->stream) == 0);
}

static int are_values(on_gpu* gpu, const void* from, float value) {
  CHECK(cuda.to_host(gpu->pinned, (uint64_t)(uintptr_t)from, count * sizeof(float), gpu->stream) == 0);
  finish(gpu);
  for (int i = 0; i < count; ++i)
    if (gpu->pinned[i] != value) return 0;
  return 1;
}

/* ---- what the ranks do ---- */

static void collectives(rondo_communicator* c, int rank, on_gpu* gpu) {
  rondo_memory *in_memory = NULL, *out_memory = NULL;
  CHECK(rondo_allocate_on(c, count * sizeof(float), 0, &in_memory) == RONDO_OK);
  CHECK(rondo_allocate_on(c, count * sizeof(float), 0, &out_memory) == RONDO_OK);
  void *in = rondo_data(in_memory), *out = rondo_data(out_memory);
  CHECK(in != NULL && out != NULL && are_values(gpu, out, 0));

  rondo_registration* registration = NULL;
  CHECK(rondo_register_on(c, in, count * sizeof(float), 0, &registration) == RONDO_OK);
  CHECK(registration != NULL);

  rondo_call call = {0};
  call.bytes = sizeof call;
  call.has_device = 1;
  call.device = 0;
  call.stream = gpu->stream;
  /* The operation comes after the copy on the stream, and the next copy after the operation. */
  rondo_request* request = NULL;
  write_values(gpu, in, (float)(rank + 1));
  CHECK(rondo_all_reduce(c, in, out, count, RONDO_F32, RONDO_SUM, &call, &request) == RONDO_OK);
  CHECK(rondo_join(request, gpu->stream) == RONDO_OK);
  CHECK(are_values(gpu, out, 6));
  CHECK(rondo_wait(request) == RONDO_OK);

  CHECK(rondo_broadcast(c, in, out, count, RONDO_F32, 1, &call, NULL) == RONDO_OK);
  CHECK(are_values(gpu, out, 2));
  /* In place, without a stream of the program. */
  call.stream = NULL;
  CHECK(rondo_all_reduce(c, out, out, count, RONDO_F32, RONDO_MAX, &call, NULL) == RONDO_OK);
  CHECK(are_values(gpu, out, 2));

  /* Host memory needs no device, and rondo_join() waits for the operation. */
  float host = (float)rank;
  CHECK(rondo_all_reduce(c, &host, &host, 1, RONDO_F32, RONDO_SUM, NULL, &request) == RONDO_OK);
  CHECK(rondo_join(request, NULL) == RONDO_OK && host == 3);
  rondo_release(request);
  CHECK(rondo_join(NULL, NULL) == RONDO_OK);
  CHECK(rondo_barrier(c, &call, NULL) == RONDO_OK);
  rondo_deregister(registration);
  rondo_free(in_memory);
  rondo_free(out_memory);
}

static void bad_input(rondo_communicator* c, int rank, on_gpu* gpu) {
  (void)rank, (void)gpu;
  float value = 1;
  rondo_memory* memory = (rondo_memory*)&value;
  CHECK(rondo_allocate_on(c, 4, -1, &memory) == RONDO_INVALID_ARGUMENT && memory == NULL);
  CHECK(strstr(rondo_message(), "GPUs count from 0") != NULL);
  CHECK(rondo_allocate_on(c, 4, 99, &memory) == RONDO_INVALID_ARGUMENT && memory == NULL);
  CHECK(strstr(rondo_message(), "there is no GPU 99") != NULL);
  CHECK(rondo_allocate_on(c, 4, 0, NULL) == RONDO_INVALID_ARGUMENT);
  CHECK(rondo_allocate_on(NULL, 4, 0, &memory) == RONDO_INVALID_ARGUMENT);
  rondo_registration* registration = (rondo_registration*)&value;
  CHECK(rondo_register_on(c, &value, 4, -1, &registration) == RONDO_INVALID_ARGUMENT &&
        registration == NULL);
  CHECK(strstr(rondo_message(), "rondo_register() is for host memory") != NULL);
  CHECK(rondo_register_on(c, &value, 4, 0, &registration) == RONDO_INVALID_ARGUMENT);
  CHECK(strstr(rondo_message(), "in host memory") != NULL);
  CHECK(rondo_register_on(c, &value, 4, 0, NULL) == RONDO_INVALID_ARGUMENT);
  rondo_call call = {0};
  call.bytes = sizeof call;
  call.has_device = 1;
  call.device = -3;
  CHECK(rondo_all_reduce(c, &value, &value, 1, RONDO_F32, RONDO_SUM, &call, NULL) ==
        RONDO_INVALID_ARGUMENT);
  CHECK(strstr(rondo_message(), "call.device is -3") != NULL);
  call.device = 99;
  CHECK(rondo_all_reduce(c, &value, &value, 1, RONDO_F32, RONDO_SUM, &call, NULL) ==
        RONDO_INVALID_ARGUMENT);
  CHECK(strstr(rondo_message(), "there is no GPU 99") != NULL);
  call.device = 0;
  CHECK(rondo_all_reduce(c, &value, &value, 1, RONDO_F32, RONDO_SUM, &call, NULL) ==
        RONDO_INVALID_ARGUMENT);
  CHECK(strstr(rondo_message(), "in host memory") != NULL);
  /* The communicator still works after all these errors. */
  CHECK(rondo_all_reduce(c, &value, &value, 1, RONDO_F32, RONDO_SUM, NULL, NULL) == RONDO_OK);
  CHECK(value == ranks);
}

/* ---- ranks ---- */

typedef struct {
  int rank;
  const char* url;
  void (*body)(rondo_communicator*, int, on_gpu*);
} rank_start;

static void* rank_main(void* argument) {
  const rank_start* const start = argument;
  rondo_options options;
  CHECK(rondo_options_init(&options) == RONDO_OK);
  options.rank = start->rank;
  options.size = ranks;
  options.rendezvous = start->url;
  rondo_communicator* communicator = NULL;
  CHECK(rondo_connect(&options, &communicator) == RONDO_OK);
  if (communicator == NULL) return NULL;
  on_gpu gpu;
  begin_gpu(&gpu);
  start->body(communicator, start->rank, &gpu);
  rondo_destroy(communicator);
  end_gpu(&gpu);
  return NULL;
}

static void run_ranks(void (*body)(rondo_communicator*, int, on_gpu*)) {
  pthread_t threads[ranks];
  rank_start starts[ranks];
  char url[128];
  snprintf(url, sizeof url, "file:///tmp/rondo-c-gpu-%ld", (long)getpid());
  for (int rank = 0; rank < ranks; ++rank) {
    const rank_start start = {rank, url, body};
    starts[rank] = start;
    if (pthread_create(&threads[rank], NULL, rank_main, &starts[rank]) != 0) abort();
  }
  for (int rank = 0; rank < ranks; ++rank) pthread_join(threads[rank], NULL);
}

static void without_driver(void) {
  rondo_options options;
  CHECK(rondo_options_init(&options) == RONDO_OK);
  options.rank = 0;
  options.size = 1;
  rondo_communicator* c = NULL;
  CHECK(rondo_connect(&options, &c) == RONDO_OK);
  if (c == NULL) return;
  float value = 1;
  rondo_memory* memory = NULL;
  CHECK(rondo_allocate_on(c, 4, 0, &memory) == RONDO_UNSUPPORTED && memory == NULL);
  CHECK(strstr(rondo_message(), "no CUDA driver here") != NULL);
  rondo_call call = {0};
  call.bytes = sizeof call;
  call.has_device = 1;
  CHECK(rondo_all_reduce(c, &value, &value, 1, RONDO_F32, RONDO_SUM, &call, NULL) == RONDO_UNSUPPORTED);
  CHECK(strstr(rondo_message(), "no CUDA driver here") != NULL);
  rondo_destroy(c);
}

int main(int argc, char** argv) {
  alarm(240); /* nothing here may hang */
  if (argc > 1 && strcmp(argv[1], "none") == 0) {
    if (dlopen("libcuda.so.1", RTLD_NOW) != NULL) {
      puts("skipped: this machine has a CUDA driver");
      return 77;
    }
    without_driver();
  } else {
    load_cuda();
    run_ranks(collectives);
    run_ranks(bad_input);
  }
  printf("rondo %s: %d failures\n", rondo_version(), failures);
  return failures == 0 ? 0 : 1;
}
