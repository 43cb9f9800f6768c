// SPDX-License-Identifier: Apache-2.0
#include "base/thread.h"

#include <pthread.h>
#include <sys/resource.h>

#include <string>
#include <system_error>

#include <rondo/error.h>

#include "base/default_floats.h"
#include "base/signals.h"

namespace rondo::base {
namespace {

[[noreturn]] void explain(const char* name, const std::error_code& code) {
  std::string text = std::string("thread ") + name + " cannot be started: " + code.message();
  rlimit limit{};
  if (code == std::errc::resource_unavailable_try_again && ::getrlimit(RLIMIT_NPROC, &limit) == 0) {
    if (limit.rlim_cur == RLIM_INFINITY)
      text +=
          "; the container or the system allows no more (pids.max of its cgroup, "
          "kernel.threads-max): raise "
          "it";
    else
      text += "; this user may have " + std::to_string(limit.rlim_cur) +
              " threads and processes: raise the limit (ulimit -u), or that of the container "
              "(pids.max)";
  }
  throw Error(Errc::system, text);
}

}  // namespace

std::thread start_thread(const char* name, std::function<void()> body) {
  std::thread thread;
  try {
    const BlockedSignals blocked;
    const DefaultFloats floats;
    thread = std::thread(std::move(body));
  } catch (const std::system_error& error) {
    explain(name, error.code());
  }
  ::pthread_setname_np(thread.native_handle(), name);
  return thread;
}

long involuntary_switches() noexcept {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

}  // namespace rondo::base
