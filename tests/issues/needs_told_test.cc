// SPDX-License-Identifier: Apache-2.0
//
// Nothing said how many threads and ports and how much memory a communicator needs.
// descriptors_test.cc tests descriptors.
#include <algorithm>
#include <barrier>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <rondo/info.h>

#include "catch.h"
#include "support/ranks.h"

namespace rondo::testing {
namespace {

std::size_t threads() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    ++count;
  return count;
}

// The inodes of the sockets of this process.
std::set<std::string> own_sockets() {
  std::set<std::string> inodes;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  return inodes;
}

// The number of TCP sockets of this process that listen.
std::size_t listeners() {
  const std::set<std::string> own = own_sockets();
  std::size_t count = 0;
  for (const char* path : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string word, state, inode;
      for (int i = 0; i < 10 && words >> word; ++i) {
        if (i == 3) state = word;
        if (i == 9) inode = word;
      }
      if (state == "0A" && own.count(inode) != 0) ++count;
    }
  }
  return count;
}

// Bytes of address space in which this process maps shared memory of Rondo (memfd).
std::size_t shared_mappings() {
  std::ifstream file("/proc/self/maps");
  std::size_t bytes = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.find("memfd:") == std::string::npos) continue;
    const auto dash = line.find('-');
    bytes += std::stoull(line.substr(dash + 1), nullptr, 16) -
             std::stoull(line.substr(0, dash), nullptr, 16);
  }
  return bytes;
}

}  // namespace

TEST_CASE("a communicator takes the threads, ports and shared memory that are told",
          "[issues][needs]") {
  constexpr int size = 4;
  const Over over = GENERATE(Over::tcp, Over::shm);
  Setup setup;
  setup.size = size;
  setup.over = over;
  Options options;
  options.transports = {std::string(name_of(over))};
  NeedsInfo told[size];
  for (int rank = 0; rank < size; ++rank) told[rank] = compute_needs(size, size, rank, options);
  std::size_t had_threads = 0, had_ports = 0, had_shared = 0, before = 0;
  const std::size_t ports_before = listeners(), shared_before = shared_mappings();
  std::barrier all(size);
  before = threads() + size;  // and the threads of the ranks
  CHECK_NOTHROW(run_communicators(setup, "needs", [&](Communicator& c, int rank) {
    c.barrier().wait();
    all.arrive_and_wait();
    if (rank == 0) {
      had_threads = threads();
      had_ports = listeners() - ports_before;
      had_shared = shared_mappings() - shared_before;
    }
    all.arrive_and_wait();
  }));
  std::size_t told_threads = 0, told_ports = 0;
  for (const NeedsInfo& needs : told) {
    told_threads += needs.threads;
    told_ports += needs.ports;
    CHECK(needs.descriptors_most >= needs.descriptors_idle);
    CHECK(needs.staging_bytes == std::size_t{16} << 20);
  }
  INFO(name_of(over));
  CHECK(had_threads - before <= told_threads + 1);  // run_ranks may have a thread that watches
  CHECK(had_threads - before >= told_threads);
  CHECK(had_ports <= told_ports);
  if (over == Over::tcp) CHECK(had_ports >= size);
  // Each rank maps the shared memory of all ranks.
  CHECK(had_shared == size * size * told[0].shared_bytes);
}

}  // namespace rondo::testing
