// SPDX-License-Identifier: Apache-2.0
//
// Replaces malloc by glibc's with a counter in front. glibc documents that a program may replace
// the whole family. operator new of libstdc++ calls malloc, so it is counted too.
#include "hot_path/counting.h"

#include <execinfo.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
void __libc_free(void* memory);
}

namespace rondo::testing {
namespace {

std::atomic<std::uint64_t> counted{0};
std::atomic<bool> reporting{false};
std::atomic<int (*)()> left_out{nullptr};

void count() noexcept {
  if (const auto inside = left_out.load(std::memory_order_relaxed); inside != nullptr && inside())
    return;
  counted.fetch_add(1, std::memory_order_relaxed);
  if (!reporting.exchange(false)) return;
  void* frames[32];
  const int depth = ::backtrace(frames, 32);
  ::backtrace_symbols_fd(frames, depth, STDERR_FILENO);
}

}  // namespace

std::uint64_t allocations() noexcept {
  return counted.load();
}
void report_next_allocation(bool report) noexcept {
  reporting.store(report);
}
void leave_out_allocations(int (*inside)()) noexcept {
  left_out.store(inside);
}

}  // namespace rondo::testing

using rondo::testing::count;

extern "C" {

void* malloc(std::size_t bytes) {
  count();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t number, std::size_t bytes) {
  count();
  return __libc_calloc(number, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  count();
  return __libc_realloc(memory, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  count();
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
void free(void* memory) {
  __libc_free(memory);
}

}  // extern "C"
