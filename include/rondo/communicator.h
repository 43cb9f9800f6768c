// SPDX-License-Identifier: Apache-2.0
//
// A communicator: the ranks of a job, or of a part of it, and every operation that they can start
// together. The rules for all calls stand at the class.
#pragma once

#include <array>
#include <chrono>
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

// Memory of the program that the transports of one communicator know, from
// Communicator::register_memory(). The destructor ends the registration and leaves the memory
// alone; of memory on a GPU it may wait. The program keeps the memory until then. A registration
// may outlive its communicator, but no operation may use the memory while it ends. Reentrant.
class RONDO_API Registration {
 public:
  Registration() noexcept;  // empty: data() is null, bytes() is 0
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
  std::vector<std::unique_ptr<transports::Registration>> parts_;  // of transports that need one
};

// Memory from Communicator::allocate(), zeroed. Host memory is page aligned and registered with
// every transport, and ranks of one host can work on it without copies. The destructor frees it. It
// may outlive its communicator, but no operation may use it while it is freed. Reentrant.
class RONDO_API Memory {
 public:
  Memory() noexcept;
  explicit Memory(std::size_t bytes);  // private to this process; throws Error(system)
  explicit Memory(std::unique_ptr<transports::Allocation> allocation) noexcept;
  // Keeps the registration of this memory: it ends before the memory is freed.
  void keep(Registration registration) noexcept { registration_ = std::move(registration); }
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();
  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  // Owner of the memory; null: this object mapped it itself.
  std::unique_ptr<transports::Allocation> allocation_;
  Registration registration_;
};

// How often this rank has waited for another one alone: all other ranks of which it hears had
// called the collective. waited is from then on to the first sign of that rank, the way of a frame
// header between hosts included.
struct LateRank {
  std::uint64_t calls = 0;
  std::chrono::nanoseconds waited{};
};

// Counters since connect(). Bytes are payload bytes of this rank.
//
// Times count from the driver's first look at the clock, and only for operations that it finds
// under way at a second look or before a sleep. So waits of less than a few microseconds are left
// out. In each lane the oldest operation counts, so no time counts twice in a lane.
//
// Which ranks a rank hears of depends on the algorithm (Communicator::algorithm()): all with
// "direct", "two_shot" and on the centre of "star"; the ranks of this host in sums and barriers of
// "two_level"; otherwise those whose frames are the first and need nothing from others, which are
// one neighbour in "ring", one partner in "doubling" and "halving", and leaves in "tree".
// docs/reference/metrics.md says more.
struct Statistics {
  std::uint64_t operations = 0;
  std::uint64_t frames_sent = 0;
  std::uint64_t frames_received = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::size_t staging_bytes = 0;  // staging memory held now
  std::uint64_t failures = 0;     // operations that ended with an error
  // TCP segments with data that the open connections have sent, and those of them that the network
  // has lost, so that they were sent again.
  std::uint64_t segments_sent = 0, segments_resent = 0;
  std::array<std::chrono::nanoseconds, wait_cause_count> waited{};  // by WaitCause
  std::vector<LateRank> late_ranks;                                 // by rank; of this one nothing
};

// One send or receive of a batch, with the meaning of Communicator::send and receive.
struct Transfer {
  enum class Kind : std::uint8_t { send, receive };
  Kind kind = Kind::send;
  Buffer buffer;
  int peer = 0;
  std::uint32_t tag = 0;
};

// A group of ranks that call the same operations in the same order.
//
// Every rank must call each operation with the same count (or counts), type, op, root and scale
// (input scales may differ). If they differ, every rank gets Error(mismatch), which names both
// calls. If ranks give a call different priorities, they wait for each other until the deadline. An
// operation is done on a rank only when all ranks have called it.
//
// Starting an operation never waits. Operations of one priority begin in the order in which they
// were started, and overlap in time. An operation begins only when no earlier collective writes its
// memory or reads what it would write. Messages are apart, see send().
//
// Buffers may be in memory of a GPU (Buffer::device). Those of a collective are so on all ranks or
// on none; of a message each end may be either, but the buffers of one call are alike.
//
// Arguments are checked at once: Error(invalid_argument), or Error(unsupported) where there is no
// CUDA driver or a stream is captured, and nothing was started. Every later error arrives through
// Work. After the first failure the communicator is of no further use: every later operation fails
// at once with the same first cause.
//
// Threads: one thread at a time starts operations of one priority, so that their order is the same
// on all ranks. Messages count as a third priority. Different threads may start different
// priorities at once. describe(), algorithm(), local_ranks(), allocate(), register_memory(),
// abort(), dump() and statistics() are thread-safe. In a forked child these and all operations
// throw Error(unsupported), except local_ranks(), and abort() does nothing.
class RONDO_API Communicator {
 public:
  // Joins the other ranks. Either it returns on every rank, or it throws on every rank, with one
  // cause; a rank that cannot find the others throws alone. Error: rendezvous, authentication,
  // deadline_exceeded, invalid_argument, mismatch (options differ), unsupported, peer_lost, system.
  static Communicator connect(const Options& options = {});

  explicit Communicator(std::unique_ptr<lib::CommunicatorState> state);
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  // Ends pending operations with Errc::aborted. Returns within two seconds whatever the peers do.
  // Over tcp and rdma it waits, within this time, until the hosts of the receivers have every
  // message whose send has ended: over tcp only 0.2 seconds while a collective is under way, and
  // after a failure not at all. Each communicator has this time for itself: several that are
  // destroyed in turn add up.
  ~Communicator();

  int rank() const noexcept;
  int size() const noexcept;
  // The ranks on this rank's host, with this one, ascending. Options::host can say which ranks
  // share a host. Valid until the communicator is destroyed.
  std::span<const int> local_ranks() const noexcept;
  // Where this rank accepts data connections from other hosts, as "host:port". If only shared
  // memory is allowed, the process instead ("process 4711"). Empty if there is one rank.
  std::string address() const;
  // The time for an operation that sets none: Options::deadline or RONDO_DEADLINE. Operations take
  // a year for whatever is longer.
  std::chrono::milliseconds deadline() const noexcept;
  // How this rank reaches rank `peer`: "tcp, 2 paths: 10.1.0.1 -> 10.1.0.2 (eth0), 10.2.0.1 ->
  // 10.2.0.2 (eth1)", and which interfaces are not used, with the reason. Empty for this rank
  // itself. Throws Error(invalid_argument) for a rank that does not exist.
  std::string describe_peer(int peer) const;
  // Returns what the planner chooses for a call: "ring over tcp, segments of 1 MiB, 4 in flight".
  // count is that of the smaller buffer (the block of one rank); for all_gather_v and
  // reduce_scatter_v the sum of the counts. device: of the buffers, as in Buffer. Throws
  // Error(invalid_argument) for an operation or type that does not exist.
  std::string describe(Collective operation, std::size_t count, DType type, int device = -1) const;
  // The name of the algorithm alone ("ring").
  std::string algorithm(Collective operation, std::size_t count, DType type, int device = -1) const;
  Statistics statistics() const;
  // The costs that the planner uses, the same on all ranks. See Options::measure.
  PlanConstants constants() const;

  // out[i] = op over ranks of in[i]. in and out have the same count. In place: in.data == out.data.
  // Partial overlap is an error.
  Work all_reduce(Buffer in, Buffer out, ReduceOp op, const OpOptions& options = {});
  // As all_reduce, with the result on `root` only; out is ignored elsewhere.
  Work reduce(Buffer in, Buffer out, ReduceOp op, int root, const OpOptions& options = {});
  // Copies root's buffer to all ranks. in is read on the root only. In place: in.data == out.data.
  Work broadcast(Buffer in, Buffer out, int root, const OpOptions& options = {});
  // out[r * in.count + i] = in[i] of rank r; out.count = size * in.count. In place: in.data ==
  // out.data + rank * in.count elements.
  Work all_gather(Buffer in, Buffer out, const OpOptions& options = {});
  // out[i] = op over ranks of in[rank * out.count + i]; in.count = size * out.count. In place:
  // out.data == in.data + rank * out.count elements.
  Work reduce_scatter(Buffer in, Buffer out, ReduceOp op, const OpOptions& options = {});
  // As all_gather, with the result on `root` only; out is ignored elsewhere.
  Work gather(Buffer in, Buffer out, int root, const OpOptions& options = {});
  // out[i] = in[rank * out.count + i] of root. On the root in.count = size * out.count; elsewhere
  // in is ignored. In place, on the root: out.data == in.data + root * out.count elements.
  Work scatter(Buffer in, Buffer out, int root, const OpOptions& options = {});
  // Block j of out is block `rank` of rank j's in. A block is in.count / size elements, so in.count
  // == out.count is a multiple of size. In place: in.data == out.data; each rank may choose.
  Work all_to_all(Buffer in, Buffer out, const OpOptions& options = {});
  // As all_gather and reduce_scatter, but rank r's block has counts[r] elements; 0 is allowed.
  // Blocks follow each other in the order of ranks. counts has one element for each rank, and all
  // ranks give the same; it is not needed after the call. The buffer of one block has counts[rank]
  // elements, the other one their sum. In place: the block lies where it belongs in the larger
  // buffer.
  Work all_gather_v(Buffer in, Buffer out, std::span<const std::size_t> counts,
                    const OpOptions& options = {});
  Work reduce_scatter_v(Buffer in, Buffer out, std::span<const std::size_t> counts, ReduceOp op,
                        const OpOptions& options = {});
  // Done when all ranks have called it.
  Work barrier(const OpOptions& options = {});

  // Messages between two ranks. A receive takes the oldest message from that peer with that tag
  // that no earlier receive has taken. Messages with other tags do not matter, and a receive of any
  // tag does not exist. The peer may be this rank itself.
  //
  // Count and type must equal those of the send. If not, even if the receive is larger,
  // Error(mismatch) names both calls. A send is done when its buffer may be changed; for up to 64
  // KiB that may be before the peer calls the receive. Messages have an order of their own: they
  // do not delay collectives, and wait for one only if it was started before them and still uses
  // their memory. OpOptions::priority is ignored. No operation that is started later may use the
  // memory of a receive, or write that of a send, until it is done. See docs/point-to-point.md.
  Work send(Buffer in, int peer, std::uint32_t tag = 0, const OpOptions& options = {});
  Work receive(Buffer out, int peer, std::uint32_t tag = 0, const OpOptions& options = {});
  // As receive, from whichever rank has a message with this tag, this one among them.
  // Work::source() says which it was. Of several messages it takes the one that came here first. So
  // the order between senders is left to chance; messages of one sender keep theirs. A message that
  // this call and a receive from its sender could both take belongs to the one that was called
  // first.
  //
  // A rank that leaves in order does not end it, unless all others have left: then
  // Error(peer_left).
  Work receive_any(Buffer out, std::uint32_t tag = 0, const OpOptions& options = {});
  // Starts all transfers at once, as though each was called alone, with one Work that is done when
  // all are. Ranks may list them in any order: if every send has its receive, the batches end.
  // Sends to one peer with one tag are matched in the order of the list. An empty list is done at
  // once.
  //
  //   Wrong, on both ranks of a pair, because each waits for the other's send:
  //     c.receive(a, 1).wait();
  //     c.send(b, 1).wait();
  //   Right:
  //     c.batch(std::array{Transfer{Transfer::Kind::receive, a, 1},
  //                        Transfer{Transfer::Kind::send, b, 1}}).wait();
  Work batch(std::span<const Transfer> transfers, const OpOptions& options = {});
  // Sends part r of in, send_counts[r] elements, to rank r. There it becomes part `rank` of out.
  // Parts follow each other in the order of ranks. Each rank gives its own counts. What it sends to
  // r must be what r receives from it, else Error(mismatch) names the two. in and out must not
  // overlap. Done on a rank only when all ranks have called it. The n-th call on one rank belongs
  // to the n-th on the others.
  Work all_to_all_v(Buffer in, std::span<const std::size_t> send_counts, Buffer out,
                    std::span<const std::size_t> receive_counts, const OpOptions& options = {});

  // Makes a communicator of the ranks that give the same color, ordered by key and then by rank
  // here. Returns nothing for a negative color. All ranks call it, in the same order as other
  // operations. It returns when the ranks of this color have joined.
  //
  // The new communicator inherits the options. It has its own transports, threads and order of
  // operations: different threads may use the two at once, and either may be destroyed first.
  // Throws Error: if a rank of the color fails before the ranks have joined, its cause on every
  // rank of the color; else what connect() throws.
  std::optional<Communicator> split(int color, int key);

  // Allocates memory in a window: ranks of this host work on it directly. Ranks need not allocate
  // the same, but an operation runs without copies only if all ranks give such memory. After an
  // operation has failed here, other ranks may read and write the memory until they notice the
  // failure. Do not rely on its contents before all ranks have destroyed the communicator.
  //
  // device: the ordinal of a GPU for memory there. Memory::data() is an address of the GPU. With
  // Options::algorithm "direct" the memory takes whole pages of the GPU, and ranks of this host
  // reach it (docs/gpu.md), as with "two_level" on several hosts. When it is freed the GPU gets it
  // back once each of them has made another call on that GPU, or has allocated there. Throws Error:
  // system; for a GPU also unsupported (no CUDA driver) and invalid_argument (no such GPU).
  Memory allocate(std::size_t bytes, int device = -1);
  // Makes memory of the program known to every transport while the returned object lives. A network
  // card then reads and writes it without copies. Operations also work on memory that is not
  // registered; a transport that needs registered memory copies through staging memory. Register
  // memory that many operations use; allocate() registers by itself. Ranges may overlap. Local:
  // other ranks are not told, and results do not change.
  //
  //   Wrong: auto r = c.register_memory(p, n); std::free(p);
  //   Right: r = {}; std::free(p);
  //
  // device: the ordinal of a GPU, for memory of cudaMalloc there. Where ranks of this host reach
  // memory of allocate() on a GPU, they then reach the whole allocation that holds this memory;
  // elsewhere there is nothing to register. When the last registration in an allocation ends, the
  // end waits until operations on it have ended here and the other ranks have let go of it,
  // whatever they do. That takes milliseconds as a rule and five seconds at most; then a line on
  // standard error says that the memory must not be freed. The destructor of the communicator ends
  // what is still registered.
  //
  //   Wrong: cudaFree(p) while r lives: another process has the memory open, and CUDA leaves
  //   undefined what happens then.
  //   Right: r = {}; cudaFree(p);
  //
  // Throws Error: invalid_argument if data is null, bytes is 0, the range wraps around or is not in
  // memory of this GPU; unsupported in a forked child, without a CUDA driver, and for memory that
  // other processes cannot open (of pools or cuMemCreate); system if the system refuses
  // (RLIMIT_MEMLOCK) or CUDA does.
  Registration register_memory(void* data, std::size_t bytes, int device = -1);
  // Ends every pending operation on every rank with this cause. Returns in bounded time. The code
  // is Errc::aborted on every rank. The message names this rank and has the words of `why` and the
  // first 1000 bytes of text: "rank 2 called abort: data from the wire is damaged: batch 17 has no
  // labels". With Errc::aborted or no error, the text stands alone: "rank 2 called abort: batch 17
  // has no labels". Control characters, and bytes that are not UTF-8, become blanks. If ranks abort
  // at once, one of their causes holds for all. After a failure it does nothing.
  void abort(std::error_code why, std::string_view text = {}) noexcept;
  // Writes what this rank knows of its operations and of the other ranks to the file, as it does by
  // itself at the first failure; `rondo trace` compares the files of all ranks. An empty path: in
  // the folder of dumps (RONDO_DUMP, docs/recorder.md). Returns the path. Thread-safe. Throws
  // Error: system if the file cannot be written; unsupported in a forked child.
  std::string dump(std::string_view path = {}) const;
  // In a forked child: gives up the child's copies of all communicators of its parent, not only of
  // this one. Closes their descriptors, so that the other ranks notice at once when the parent
  // dies. Takes no lock, waits for nothing, touches no thread and frees no memory, so a handler of
  // pthread_atfork may call it. Afterwards operations here throw Error(unsupported), and the
  // destructor does nothing. Communicators that the child has connected itself go on.
  //
  // After fork() this has happened already. Only children made without the handlers of fork()
  // (clone, _Fork) need the call, as the first use of Rondo and before they start threads. A child
  // of vfork() must not make it. In the process that connected the communicator it does nothing:
  // see abort().
  void abandon() noexcept;

  // Serves Rondo's own rooms (lib/inner.h), not programs.
  lib::CommunicatorState& state() const noexcept { return *state_; }

 private:
  std::unique_ptr<lib::CommunicatorState> state_;
};

}  // namespace rondo
