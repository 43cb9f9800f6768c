// SPDX-License-Identifier: Apache-2.0
//
// Lists what the harness needs of a library that bench/peers/compare.py measures.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::compare {

// One rank of a communication library. All ranks make the same calls in the same order, each from
// one thread. A call that fails throws.
class Library {
 public:
  virtual ~Library() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The algorithms for an all-reduce. The driver measures each as a separate candidate.
  virtual std::vector<std::string> algorithms() const = 0;
  // True when the algorithm has no separate input: it reduces `output` in place.
  virtual bool in_place(std::string_view algorithm) const = 0;
  // Special memory of the library for the algorithm's output, valid until the next allocate().
  // Empty: any memory will do.
  virtual std::span<float> allocate(std::string_view algorithm, std::size_t count) = 0;
  // The next all_reduce() calls sum `input` into `output`. The caller keeps both until the next
  // prepare().
  virtual void prepare(std::string_view algorithm, std::span<float> input,
                       std::span<float> output) = 0;
  virtual void all_reduce() = 0;
  virtual void barrier() = 0;
  // Lets the library continue operations that other ranks still wait for. Never waits.
  virtual void progress() = 0;
};

using MakeLibrary = std::function<std::unique_ptr<Library>()>;

// Runs a rank: connects to the driver at `control_path`, makes the library, and follows the
// driver's commands until "quit". harness.cc describes the commands. Returns the exit status.
int run_rank(const std::string& control_path, const MakeLibrary& make_library);

}  // namespace rondo::compare
