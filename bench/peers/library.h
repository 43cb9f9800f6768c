// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::compare {

// One rank of a communication library under comparison. All ranks make the same calls in the same
// order, from one thread; a call that fails throws.
class Library {
 public:
  virtual ~Library() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The ways in which it can run an all-reduce; each is measured as a candidate of its own.
  virtual std::vector<std::string> algorithms() const = 0;
  // True when the algorithm knows no separate input: it reduces what stands in `output`.
  virtual bool in_place(std::string_view algorithm) const = 0;
  // Memory of its own kind for the output of the algorithm, valid until the next call; empty: any
  // memory will do.
  virtual std::span<float> allocate(std::string_view algorithm, std::size_t count) = 0;
  // Makes the next all_reduce() calls sum `input` into `output`, which stay valid until the next
  // prepare().
  virtual void prepare(std::string_view algorithm, std::span<float> input,
                       std::span<float> output) = 0;
  virtual void all_reduce() = 0;
  virtual void barrier() = 0;
  // Gives the library a chance to finish what other ranks still wait for. Never waits.
  virtual void progress() = 0;
};

using MakeLibrary = std::function<std::unique_ptr<Library>()>;

// The whole life of a rank: connects to the driver at `control_path`, makes the library and obeys
// until it is told to quit. Returns the exit status. See harness.cc for the lines that are
// exchanged.
int run_rank(const std::string& control_path, const MakeLibrary& make_library);

}  // namespace rondo::compare
