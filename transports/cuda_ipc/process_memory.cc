// SPDX-License-Identifier: Apache-2.0
#include "transports/cuda_ipc/process_memory.h"

#include <sys/random.h>

#include <cerrno>
#include <map>
#include <mutex>
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

}  // namespace

std::uint64_t random_word() {
  std::uint64_t word = 0;
  while (word == 0)
    if (::getrandom(&word, sizeof word, 0) != static_cast<ssize_t>(sizeof word))
      throw Error(Errc::system, "getrandom: " + std::generic_category().message(errno));
  return word;
}

std::uint64_t add_process_memory(const ProcessMemory& memory) {
  std::uint64_t name = 0;
  Names& all = names();
  do {
    name = random_word();
    const std::lock_guard lock(all.mutex);
    if (!all.memory.emplace(name, memory).second) name = 0;
  } while (name == 0);
  return name;
}

void remove_process_memory(std::uint64_t name) noexcept {
  const std::lock_guard lock(names().mutex);
  names().memory.erase(name);
}

// The importer has written its identity where the owner sees it only if they share a communicator.
std::optional<ProcessMemory> find_process_memory(std::uint64_t name, const Importer& importer) {
  const std::lock_guard lock(names().mutex);
  const auto found = names().memory.find(name);
  if (found == names().memory.end()) return {};
  const ProcessMemory& memory = found->second;
  if (memory.rank != importer.owner || importer.place >= memory.ranks.size() ||
      memory.ranks[importer.place]->identity.load(std::memory_order_acquire) != importer.identity)
    return {};
  return memory;
}

}  // namespace rondo::cuda_ipc
