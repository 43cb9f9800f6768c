// SPDX-License-Identifier: Apache-2.0
//
// One rank of the bare all-reduce (tools/ceilings/bare_all_reduce.h) as a program that
// bench/peers/compare.py measures like a library. It is no library: MEMORY is the descriptor of an
// empty memory file that all ranks have inherited.
//
//   peer_ceiling CONTROL RANK SIZE MEMORY
#include <unistd.h>

#include <cerrno>
#include <iostream>
#include <system_error>

#include "base/shared_memory.h"
#include "library.h"
#include "tools/ceilings/bare_all_reduce.h"

namespace {

rondo::base::Mapping map(int memory, int ranks) {
  const std::size_t bytes = rondo::tools::BareAllReduce::memory_bytes(ranks);
  // Every rank sets the same size. The file is full of zeros, with which all values begin.
  if (::ftruncate(memory, static_cast<off_t>(bytes)) != 0)
    throw std::system_error(errno, std::system_category(), "cannot make shared memory");
  return {memory, bytes, rondo::base::Mapping::Access::write};
}

class CeilingRank final : public rondo::compare::Library {
 public:
  CeilingRank(int rank, int size, int memory)
      : rank_(rank),
        size_(size),
        memory_(map(memory, size)),
        // Waits have no deadline: the harness ends this process when the driver's has passed.
        bare_(rank, size, memory_.data(), [](auto) {}) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::vector<std::string> algorithms() const override { return {"default"}; }
  bool in_place(std::string_view) const override { return false; }
  std::span<float> allocate(std::string_view, std::size_t) override { return {}; }
  void prepare(std::string_view, std::span<float> input, std::span<float> output) override {
    bare_.prepare(std::as_bytes(input), std::as_writable_bytes(output));
  }
  void all_reduce() override { bare_.all_reduce(); }
  void barrier() override { bare_.barrier(); }
  void progress() override {}  // what another rank needs is in its slot when a call returns

 private:
  const int rank_, size_;
  const rondo::base::Mapping memory_;
  rondo::tools::BareAllReduce bare_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: " << argv[0]
              << " CONTROL RANK SIZE MEMORY (started by bench/peers/compare.py)\n";
    return 2;
  }
  return rondo::compare::run_rank(argv[1], [argv] {
    return std::make_unique<CeilingRank>(std::stoi(argv[2]), std::stoi(argv[3]),
                                         std::stoi(argv[4]));
  });
}
