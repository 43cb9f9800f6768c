// SPDX-License-Identifier: Apache-2.0
#include "transports/cuda_ipc/process_memory.h"

#include <sys/random.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <string>
#include <system_error>

#include <rondo/error.h>

namespace rondo::cuda_ipc {

namespace {

struct Names {
  std::mutex mutex;
  std::map<std::uint64_t, ProcessMemory> memory;
};

// Registrations may end while the process does, so it is never destroyed.
Names& names() {
  static auto* const all = new Names;
  return *all;
}

std::uint64_t random_name() {
  std::uint64_t name = 0;
  if (::getrandom(&name, sizeof name, 0) != static_cast<ssize_t>(sizeof name))
    throw Error(Errc::system, "getrandom: " + std::generic_category().message(errno));
  return name;
}

}  // namespace

std::uint64_t add_process_memory(const ProcessMemory& memory) {
  std::uint64_t name = 0;
  Names& all = names();
  do {
    name = random_name();
    const std::lock_guard lock(all.mutex);
    if (name == 0 || !all.memory.emplace(name, memory).second) name = 0;
  } while (name == 0);
  return name;
}

void remove_process_memory(std::uint64_t name) noexcept {
  const std::lock_guard lock(names().mutex);
  names().memory.erase(name);
}

std::optional<ProcessMemory> find_process_memory(std::uint64_t name) {
  const std::lock_guard lock(names().mutex);
  const auto found = names().memory.find(name);
  if (found == names().memory.end()) return {};
  return found->second;
}

}  // namespace rondo::cuda_ipc
