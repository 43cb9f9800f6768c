// SPDX-License-Identifier: Apache-2.0
//
// Ceilings: rates to compare rows with. Each kind of ceiling is a class of its own source, which
// says how it is measured.
#pragma once

#include <rondo/communicator.h>
#include <rondo/gpu.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "tools/measure/conditions.h"
#include "tools/measure/gpu.h"
#include "tools/measure/row.h"

namespace rondo::tools {

// Measures what the machine reaches without Rondo, to compare a row with. The benchmark measures it
// before and after each row, because the speed of a machine changes within minutes.
class Ceiling {
 public:
  virtual ~Ceiling() = default;
  // Returns GB/s to compare a row of this size and traffic with; 0 when it could not be measured.
  // All ranks call it together and get the same result. Throws when the communicator fails.
  virtual double measure(const Row& row) = 0;
  // Whether it can be measured, as far as is known: the same on all ranks.
  virtual bool usable() const noexcept { return true; }
  // Why it could not be measured, as far as this rank knows.
  virtual std::string trouble() const { return {}; }
};

// The facts by which a ceiling is chosen. Everything outlives the ceiling.
struct CeilingNeeds {
  Communicator& communicator;
  const Options& options;
  const Conditions& conditions;
  const std::string& transport;  // that the ranks use, joined by +
  const BenchGpu* gpu = nullptr;
  std::span<std::byte> in, out;  // memory for copies, on the host
};

struct ChosenCeiling {
  std::unique_ptr<Ceiling> ceiling;  // null: none
  CeilingOf of = CeilingOf::none;
};

// The ceiling to compare rows of an operation with. All ranks call it together and choose the same.
// Where a better one cannot be measured, standard error says why.
ChosenCeiling choose_ceiling(const CeilingNeeds& needs, const Operation& operation);

// The kinds. All ranks make one together. It throws only when the communicator fails; otherwise
// usable() and trouble() say what went wrong. The memory is that of the benchmark, of one size on
// all ranks, and measure() overwrites it.
//
// Bus bandwidth of plain TCP sockets, or of bare writes of RDMA devices, over the same links.
std::unique_ptr<Ceiling> make_socket_ceiling(Communicator& communicator, const Options& options,
                                             Operation operation);
std::unique_ptr<Ceiling> make_device_ceiling(Communicator& communicator, const Options& options,
                                             Operation operation);
// Bus bandwidth of a bare all-reduce on one host. fresh: buffers are written before each iteration.
std::unique_ptr<Ceiling> make_core_ceiling(Communicator& communicator, std::span<std::byte> from,
                                           std::span<std::byte> to, bool fresh);
// Memory traffic of memcpy, and of copies within GPUs. gpu: null on ranks that do not copy.
std::unique_ptr<Ceiling> make_copy_ceiling(Communicator& communicator, std::span<std::byte> from,
                                           std::span<std::byte> to);
std::unique_ptr<Ceiling> make_gpu_ceiling(Communicator& communicator, GpuStream* gpu,
                                          std::size_t copy_bytes);

}  // namespace rondo::tools
