// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <rondo/constants.h>
#include <rondo/error.h>
#include <rondo/export.h>
#include <rondo/options.h>
#include <rondo/types.h>
#include <rondo/work.h>

namespace rondo::lib {
class CommunicatorState;
}
namespace rondo::transports {
class Allocation;
class Registration;
}  // namespace rondo::transports

namespace rondo {

// A program's own memory as the transports of one communicator know it, from
// Communicator::register_memory(). The destructor ends that; the memory itself belongs to the
// program and must live until then. It may outlive the communicator, but no operation on the memory
// may be under way when it ends. Reentrant.
class RONDO_API Registration {
 public:
  Registration() noexcept;  // of nothing
  Registration(void* data, std::size_t bytes,
               std::vector<std::unique_ptr<transports::Registration>> parts) noexcept;
  Registration(Registration&& other) noexcept;
  Registration& operator=(Registration&& other) noexcept;
  ~Registration();
  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<std::unique_ptr<transports::Registration>> parts_;  // of the transports that have one
};

// Host memory that every transport reaches without a copy; page aligned, zeroed, registered with
// every transport, freed by the destructor. It may outlive the communicator that it is from, but no
// operation on it may be under way when it is freed.
class RONDO_API Memory {
 public:
  Memory() noexcept;
  explicit Memory(std::size_t bytes);  // of this process alone
  explicit Memory(std::unique_ptr<transports::Allocation> allocation) noexcept;
  // Keeps what makes this memory known to transports; it ends before the memory is freed.
  void keep(Registration registration) noexcept { registration_ = std::move(registration); }
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();
  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  // Where the memory is from; null: a mapping of its own.
  std::unique_ptr<transports::Allocation> allocation_;
  Registration registration_;
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

// One send or receive of a batch, with the meaning of Communicator::send and receive.
struct Transfer {
  enum class Kind : std::uint8_t { send, receive };
  Kind kind = Kind::send;
  Buffer buffer;
  int peer = 0;
  std::uint32_t tag = 0;
};

// An object that a library keeps with a communicator: see Communicator::attach().
class RONDO_API Attachment {
 public:
  virtual ~Attachment() = default;
};

// A group of ranks that call the same operations in the same order.
//
// Every rank must call each operation with the same count (or counts), type, op, root and scale;
// otherwise every rank gets Error(mismatch), which names both calls. Ranks that give a call
// different priorities wait for each other until the deadline. An operation is done on a rank only
// when all ranks have called it. Operations of one priority begin in the order in which they were
// started and overlap in time; a call whose memory an operation under way still writes, or that
// would write what one still reads, first waits for that operation (collectives for collectives:
// messages are apart, see below). Arguments are checked at once (Error(invalid_argument), nothing
// started); everything later arrives through Work. After the first failure the communicator is of
// no further use: every later operation fails at once with the same first cause.
//
// Threads: one thread at a time starts operations of one priority (messages count as a third), so
// that their order is the same on all ranks; different threads may start different priorities at
// once. describe(), algorithm(), local_ranks(), attach(), attachment(), allocate(),
// register_memory(), abort() and statistics() may be called from any.
class RONDO_API Communicator {
 public:
  // Joins the other ranks. Throws Error: rendezvous, authentication, deadline_exceeded,
  // invalid_argument, system.
  static Communicator connect(const Options& options = {});

  explicit Communicator(std::unique_ptr<lib::CommunicatorState> state);
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();  // ends pending operations with Errc::aborted; returns within two seconds
                    // whatever the peers do

  int rank() const noexcept;
  int size() const noexcept;
  // The ranks on this rank's host, this one among them, ascending. Hosts are told apart as
  // Options::host says. Valid until the communicator is destroyed.
  std::span<const int> local_ranks() const noexcept;
  // Where this rank's data connections from other hosts arrive, as "host:port"; its process where
  // only shared memory is allowed; empty when alone.
  std::string address() const;
  // How rank `peer` is reached: "tcp, 2 paths: 10.1.0.1 -> 10.1.0.2 (eth0), 10.2.0.1 -> 10.2.0.2
  // (eth1)", and which interfaces were not taken, with the reason. Empty for this rank itself.
  // Throws Error(invalid_argument) for a rank that does not exist.
  std::string describe_peer(int peer) const;
  // "ring over tcp, segments of 1 MiB, 4 in flight": what the planner chooses for a call.
  std::string describe(Collective operation, std::size_t count, DType type) const;
  // The name of the algorithm alone ("ring").
  std::string algorithm(Collective operation, std::size_t count, DType type) const;
  Statistics statistics() const;
  // What the planner reckons with: the same on all ranks. See Options::measure.
  PlanConstants constants() const;

  // out[i] = op over ranks of in[i]. in and out have the same count; in == out is in place, partial
  // overlap is an error.
  Work all_reduce(Buffer in, Buffer out, ReduceOp op, const OpOptions& options = {});
  // As all_reduce, with the result on `root` only; out is ignored elsewhere.
  Work reduce(Buffer in, Buffer out, ReduceOp op, int root, const OpOptions& options = {});
  // Copies root's buffer to all. in is read on the root only; in == out is in place.
  Work broadcast(Buffer in, Buffer out, int root, const OpOptions& options = {});
  // out[r * in.count + i] = in[i] of rank r; out.count = size * in.count. In place: in.data ==
  // out.data + rank * in.count.
  Work all_gather(Buffer in, Buffer out, const OpOptions& options = {});
  // out[i] = op over ranks of in[rank * out.count + i]; in.count = size * out.count. In place:
  // out.data == in.data + rank * out.count elements.
  Work reduce_scatter(Buffer in, Buffer out, ReduceOp op, const OpOptions& options = {});
  // As all_gather, with the result on `root` only; out is ignored elsewhere.
  Work gather(Buffer in, Buffer out, int root, const OpOptions& options = {});
  // out[i] = in[rank * out.count + i] of root; in.count = size * out.count on the root, elsewhere
  // in is ignored. In place, on the root: out.data == in.data + root * out.count elements.
  Work scatter(Buffer in, Buffer out, int root, const OpOptions& options = {});
  // Block j of out is block `rank` of rank j's in, where a block is in.count / size elements:
  // in.count == out.count, a multiple of size. In place: in.data == out.data; each rank may choose.
  Work all_to_all(Buffer in, Buffer out, const OpOptions& options = {});
  // As all_gather and reduce_scatter, but rank r's block has counts[r] elements, 0 allowed, and
  // blocks follow each other in the order of ranks. counts, one for each rank and the same on all
  // of them, is not needed after the call. The buffer of one block has counts[rank] elements, the
  // other their sum. In place: the block lies where it belongs in the larger buffer.
  Work all_gather_v(Buffer in, Buffer out, std::span<const std::size_t> counts,
                    const OpOptions& options = {});
  Work reduce_scatter_v(Buffer in, Buffer out, std::span<const std::size_t> counts, ReduceOp op,
                        const OpOptions& options = {});
  // Done when all ranks have called it.
  Work barrier(const OpOptions& options = {});

  // Messages between two ranks. A receive takes the first message from that peer with that tag that
  // no earlier receive has taken, however the tags of other messages lie; there is no receive from
  // anybody or of any tag. Count and type must be those of the send: Error(mismatch) names both
  // calls, also when the receive is the larger one. A send is done when its buffer may be changed;
  // up to 64 KiB that may be before the receive has been called. Messages have an order of their
  // own: they neither wait for collectives nor delay them. The peer may be this rank itself.
  // priority is ignored. The memory of a receive must not be used by another operation until it is
  // done. See docs/point-to-point.md.
  Work send(Buffer in, int peer, std::uint32_t tag = 0, const OpOptions& options = {});
  Work receive(Buffer out, int peer, std::uint32_t tag = 0, const OpOptions& options = {});
  // All of them at once, as though each had been called alone, with one Work that is done when all
  // are. Ranks may list theirs in any order: wherever every send has its receive, the batches end.
  // Sends to one peer with one tag are matched in the order of the list. None: done.
  //   Wrong, on both ranks of a pair, because each waits for the other's send:
  //     c.receive(a, 1).wait();
  //     c.send(b, 1).wait();
  //   Right:
  //     c.batch(std::array{Transfer{Transfer::Kind::receive, a, 1},
  //                        Transfer{Transfer::Kind::send, b, 1}}).wait();
  Work batch(std::span<const Transfer> transfers, const OpOptions& options = {});
  // Part r of in, send_counts[r] elements, becomes part `rank` of rank r's out; parts follow each
  // other in the order of ranks. The counts are those of this rank: what it sends to r must be what
  // r receives from it, else Error(mismatch) names the two. in and out must not overlap. Done on a
  // rank only when all ranks have called it. The n-th call on one rank belongs to the n-th on the
  // others.
  Work all_to_all_v(Buffer in, std::span<const std::size_t> send_counts, Buffer out,
                    std::span<const std::size_t> receive_counts, const OpOptions& options = {});

  // A communicator of the ranks that give the same color, ordered by key and then by rank here;
  // nothing for a negative color. All ranks call it, in the same order as other operations, and it
  // returns when those of this color have met. Options are inherited; transports, threads and the
  // order of operations are the new communicator's own, so different threads may use the two at
  // once, and either may be destroyed first. Throws Error: the first cause on every rank of the
  // color when one of them fails before they meet, else as connect().
  std::optional<Communicator> split(int color, int key);

  // Memory in a window: ranks of this host work on it directly. After an operation has failed here,
  // others may read and write it until they have noticed too: do not rely on its contents before
  // all ranks have destroyed the communicator. Ranks need not allocate the same, but operations run
  // without copies only where all of them give such memory. From any thread. Throws Error(system).
  Memory allocate(std::size_t bytes);
  // Keeps an object of a library with the communicator, such as threads that all objects of the
  // library on this communicator share. `key` is the address of a static variable of the library,
  // so that libraries do not meet. attach() returns what is kept: the new object, or the one that
  // has this key already, and then the new one is destroyed. attachment() returns null when there
  // is none. The destructor of the communicator destroys what is kept after the last operation has
  // ended, in no order; a split has attachments of its own. From any thread.
  Attachment& attach(const void* key, std::unique_ptr<Attachment> attachment);
  Attachment* attachment(const void* key) const;
  // Makes memory of the program known to every transport, for as long as the returned object lives:
  // a network card then moves bytes from and to it without copies. Nothing else is registered, so
  // without it operations work, through staging memory where a transport needs that. It pays for
  // memory that many operations use; allocate() registers by itself. Ranges may overlap. Local: no
  // other rank hears of it, and what it does not change is any result. From any thread.
  //   Wrong: auto r = c.register_memory(p, n); std::free(p);
  //   Right: r = {}; std::free(p);
  // Throws Error: invalid_argument when data is null, bytes is 0 or the range wraps around,
  // unsupported in a forked child, system when the system refuses (RLIMIT_MEMLOCK).
  Registration register_memory(void* data, std::size_t bytes);
  // Reserves the order of bulk operations for one owner whose operations start by themselves, as
  // those of GradientBuckets in a step. Until release_bulk(owner), a bulk operation with another
  // OpOptions::owner throws Error(invalid_argument), on whatever thread, and so does another
  // reserve_bulk(). `who` names the owner in messages and must live until then. Local: all ranks
  // make the same calls. Urgent operations and messages have orders of their own. release_bulk() by
  // another owner does nothing.
  void reserve_bulk(const void* owner, std::string_view who);
  void release_bulk(const void* owner) noexcept;
  // Ends every pending operation on every rank with this cause. From any thread; bounded in time.
  // The message on every rank has the first 1000 bytes of text: "rank 2 called abort: data from the
  // wire is damaged: batch 17 has no labels". Errc::aborted with a text adds no words of its own:
  // "rank 2 called abort: batch 17 has no labels".
  void abort(std::error_code why, std::string_view text = {}) noexcept;

 private:
  std::unique_ptr<lib::CommunicatorState> state_;
};

}  // namespace rondo
