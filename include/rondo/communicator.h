// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>

#include <rondo/error.h>
#include <rondo/export.h>
#include <rondo/options.h>
#include <rondo/types.h>
#include <rondo/work.h>

namespace rondo {

class CommunicatorState;

// Host memory that every transport reaches without a copy; page aligned, zeroed, freed by the destructor.
class RONDO_API Memory {
 public:
  Memory() noexcept = default;
  explicit Memory(std::size_t bytes);
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();
  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Counters since connect(). Bytes are payload bytes of this rank.
struct Statistics {
  std::uint64_t operations = 0;
  std::uint64_t frames_sent = 0;
  std::uint64_t frames_received = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::size_t staging_bytes = 0;  // staging memory held now
};

// A group of ranks that call the same operations in the same order.
//
// Every rank must call each operation with the same count, type, op, root and scale; otherwise every rank gets Error(mismatch),
// which names both calls. Ranks that give a call different priorities wait for each other until the deadline. An operation is done on a rank only when all ranks have called it. Operations of one
// priority begin in the order in which they were started and overlap in time; a call whose memory an operation under way still writes,
// or that would write what one still reads, first waits for that operation. Arguments are checked at once (Error(invalid_argument), nothing
// started); everything later arrives through Work. After the first failure the communicator is of no further use: every later
// operation fails at once with the same first cause.
//
// Threads: one thread at a time starts operations or asks describe() and algorithm(); abort() and statistics() may be called from any.
class RONDO_API Communicator {
 public:
  // Joins the other ranks. Throws Error: rendezvous, authentication, deadline_exceeded, invalid_argument, system.
  static Communicator connect(const Options& options = Options::from_environment());

  explicit Communicator(std::unique_ptr<CommunicatorState> state);
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();  // ends pending operations with Errc::aborted; returns within two seconds whatever the peers do

  int rank() const noexcept;
  int size() const noexcept;
  // The address at which this rank's data connections arrive, as "host:port"; empty when alone.
  std::string address() const;
  // "ring over tcp, segments of 1 MiB, 4 in flight": what the planner chooses for a call.
  std::string describe(Collective operation, std::size_t count, DType type) const;
  // The name of the algorithm alone ("ring").
  std::string algorithm(Collective operation, std::size_t count, DType type) const;
  Statistics statistics() const;

  // out[i] = op over ranks of in[i]. in and out have the same count; in == out is in place, partial overlap is an error.
  Work all_reduce(Buffer in, Buffer out, ReduceOp op, const OpOptions& options = {});
  // As all_reduce, with the result on `root` only; out is ignored elsewhere.
  Work reduce(Buffer in, Buffer out, ReduceOp op, int root, const OpOptions& options = {});
  // Copies root's buffer to all. in is read on the root only; in == out is in place.
  Work broadcast(Buffer in, Buffer out, int root, const OpOptions& options = {});
  // out[r * in.count + i] = in[i] of rank r; out.count = size * in.count. In place: in.data == out.data + rank * in.count.
  Work all_gather(Buffer in, Buffer out, const OpOptions& options = {});
  // out[i] = op over ranks of in[rank * out.count + i]; in.count = size * out.count. In place: out.data == in.data + rank *
  // out.count elements.
  Work reduce_scatter(Buffer in, Buffer out, ReduceOp op, const OpOptions& options = {});
  // Done when all ranks have called it.
  Work barrier(const OpOptions& options = {});

  Memory allocate(std::size_t bytes);
  // Ends every pending operation on every rank with this cause; from any thread. Bounded.
  void abort(std::error_code why) noexcept;

 private:
  std::unique_ptr<CommunicatorState> state_;
};

}  // namespace rondo
