/* SPDX-License-Identifier: Apache-2.0
 *
 * What the C programs of these tests share. Each is one source, and its ranks are threads.
 */
#pragma once

#include <pthread.h>
#include <rondo/c.h>
#include <stdio.h>

enum { ranks = 3, count = 5000 };

static pthread_mutex_t failure_mutex = PTHREAD_MUTEX_INITIALIZER;
static int failures;

#define CHECK(condition)                                                                    \
  do {                                                                                      \
    if (!(condition)) {                                                                     \
      fprintf(stderr, "%s:%d: %s is not so; message: %s\n", __FILE__, __LINE__, #condition, \
              rondo_message());                                                             \
      pthread_mutex_lock(&failure_mutex);                                                   \
      ++failures;                                                                           \
      pthread_mutex_unlock(&failure_mutex);                                                 \
    }                                                                                       \
  } while (0)
