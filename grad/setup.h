// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/gradients.h>

#include "grad/layout.h"
#include "grad/passes.h"
#include "grad/storage.h"

namespace rondo::grad {

// What all phases of a step share: the communicator, the parameters, the options, the memory, and
// what is done with its bytes.
// Each phase holds a reference; the setup outlives them all.
//
// Threads: the constructor and the destructor run on the step thread, the one that calls
// begin_step() and finish(). Everything else is const in a step, so any thread may read it. Between
// steps the step thread may replace `layout`.
// Locks: none.
// Failure: the constructor is collective and throws Error on every rank.
struct Setup {
  Setup(Communicator& communicator, std::vector<Parameter> parameters, GradientOptions options);
  Setup(const Setup&) = delete;
  Setup& operator=(const Setup&) = delete;
  // Releases the order of bulk operations. Waits for a GPU until the deadline of the options, at
  // most 10 s: what it may still use after that is never freed.
  ~Setup();

  // Throws Error(invalid_argument) with the name of this rank. Other ranks do not learn of it.
  [[noreturn]] void refuse(const std::string& what) const;
  // Refuses a finite element of this parameter that is infinite as f16, as which it travels.
  [[noreturn]] void refuse_overflow(std::size_t parameter) const;
  // Refuses a parameter that does not exist. `call` is the function that was given it.
  void check_index(std::string_view call, std::size_t parameter) const;

  Buffer gradient(std::size_t parameter) const;
  // For every operation of these buckets: deadline, tag, and this setup as the owner of the bulk
  // lane.
  OpOptions operation_options(std::string_view tag) const;

  Communicator& communicator;
  const std::vector<Parameter> parameters;
  const GradientOptions options;
  GradientLayout layout;
  std::unique_ptr<Storage> memory;
  Storage& storage;
  const std::uint64_t number;  // tells these buckets from others on the communicator
  const std::string title;     // names these buckets in messages
  std::unique_ptr<Passes> passes;
};

}  // namespace rondo::grad
