// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/gradients.h>

#include "grad/layout.h"
#include "grad/passes.h"
#include "lib/inner.h"

namespace rondo::grad {

// The memory of an arena, of the host or of a GPU. It never moves, so views of gradients stay
// valid. With a wire type, gradients of f32 have a second one of that type.
struct ArenaMemory {
  Memory gradients, wire;
  DType wire_type = DType::f32;  // the type that travels
};

// Options of an operation of these buckets, which own the order of bulk operations: the thread
// starts it while the object lives.
struct OwnOptions : OpOptions {
  lib::AsOwner owner;
};

// All that the phases of a step share: the communicator, the parameters, the options, the memory,
// and the passes over it. Each phase holds a reference; the setup outlives them all.
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
  // Refuses a parameter that does not exist. `call` is the function that was given it.
  void check_index(std::string_view call, std::size_t parameter) const;

  Buffer gradient(std::size_t parameter) const;
  std::byte* view_at(std::size_t arena, std::size_t offset) const noexcept {
    return static_cast<std::byte*>((*memory)[arena].gradients.data()) + offset;
  }
  bool has_wire(std::size_t arena) const noexcept {
    return (*memory)[arena].wire.data() != nullptr;
  }
  // The bytes of a bucket that travel: the gradients themselves, or their copy in the wire type.
  Buffer travelling(std::size_t bucket) const noexcept;
  // The place in these bytes of what belongs to byte `offset` of the arena.
  std::byte* travelling_at(std::size_t arena, std::size_t offset) const noexcept;
  // For every operation of these buckets.
  OwnOptions operation_options(std::string_view tag) const;

  Communicator& communicator;
  const std::vector<Parameter> parameters;
  const int device;  // of the gradients, as Buffer::device
  const GradientOptions options;
  const std::uint64_t number;  // tells these buckets from others
  GradientLayout layout;
  std::unique_ptr<std::vector<ArenaMemory>> memory;  // by arena
  const std::string title;                           // names these buckets in messages
  std::unique_ptr<Passes> passes;
};

}  // namespace rondo::grad
