// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/constants.h>
#include <rondo/export.h>
#include <rondo/types.h>

namespace rondo {

class Store;

// On or off, and whether the program has set it. If it has not, the environment decides.
class Switch {
 public:
  constexpr Switch() noexcept = default;
  constexpr Switch(bool on) noexcept : on_(on), set_(true) {}
  constexpr operator bool() const noexcept { return on_; }
  constexpr bool is_set() const noexcept { return set_; }

 private:
  bool on_ = false, set_ = false;
};

// How a communicator is made. Every field follows one rule: the value that the program sets comes
// first, then Rondo's variable (RONDO_*), then the launcher's variables (rank, size, rendezvous),
// then the default. A field counts as set when it differs from its initial value below.
// docs/reference/environment.md lists the variables.
//
//   connect(Options{.deadline = std::chrono::seconds{20}})  // reads RONDO_*, not RONDO_DEADLINE
//
// "All ranks alike": if ranks differ, connect() throws Error(mismatch) with the values of every
// rank.
struct RONDO_API Options {
  int rank = -1;  // -1: not set
  int size = 0;   // 0: not set
  // Where the ranks join: env:// (RONDO_RENDEZVOUS, else the launcher's variables), tcp://host:port
  // (rank 0 listens there) or file:///path (a file that all ranks share).
  std::string rendezvous = "env://";
  Store* store = nullptr;  // if given, used instead of the URL; must outlive connect()
  // The job secret, the same on all ranks. Empty: RONDO_SECRET or RONDO_SECRET_FILE, else the one
  // that the launcher carries. If there is none, only ranks of this user on this host can join.
  std::string secret{};
  // Time for connect(). 0: RONDO_CONNECT_DEADLINE, else 30 s.
  std::chrono::milliseconds connect_deadline{0};
  // Time for a whole operation, unless OpOptions sets its own. 0: RONDO_DEADLINE, else 300 s.
  std::chrono::milliseconds deadline{0};
  // Allowed transports ("shm", "rdma", "tcp"). Empty: all. Each peer is reached over the nearest
  // one that can reach it. All ranks alike.
  std::vector<std::string> transports{};
  // Interfaces and networks that may be used: "eth0,10.0.0.0/8". A list that begins with ^ excludes
  // all that it names ("^docker0,lo"); otherwise ^ before an item excludes that item
  // ("eth*,^eth3"). Empty: any. docs/reference/transports.md says which of these are used.
  std::vector<std::string> interfaces{};
  // TCP connections between two interfaces, within a host between two ranks: 1 to 16. If ranks
  // differ, the smaller number counts. 0: RONDO_CONNECTIONS, else 1.
  int connections = 0;
  // RDMA devices that may be used: "mlx5_0,mlx5_1:1", "mlx5*", with ^ as in interfaces. Empty: any.
  std::vector<std::string> rdma_devices{};
  int rdma_gid_index = -1;  // -1: RONDO_RDMA_GID_INDEX, else the best one of each port
  // Whether RDMA peers write straight to registered memory. No value: RONDO_RDMA_GRANTS, else true.
  std::optional<bool> rdma_grants{};
  int rdma_traffic_class = -1;   // 0 to 255; -1: RONDO_RDMA_TRAFFIC_CLASS, else 0
  int rdma_service_level = -1;   // 0 to 15; -1: RONDO_RDMA_SERVICE_LEVEL, else 0
  std::uint16_t port_first = 0;  // listening ports; 0: RONDO_PORT_RANGE, else any
  std::uint16_t port_last = 0;
  // If on, the bits of results depend on the inputs and the number of ranks alone. All ranks alike.
  Switch reproducible{};
  // Ranks with the same text count as ranks of one host when algorithms are chosen and laid out; at
  // most 16384 bytes. Empty: ranks with the same boot and network namespace share a host. It does
  // not change which transport reaches a peer.
  std::string host{};
  // How many ranks share the cores of this host, over all communicators. Where they outnumber the
  // cores, ranks that wait yield their core at once. 0: RONDO_RANKS_ON_HOST, else what the launcher
  // says, else the ranks of this communicator on this host. A smaller number than the last does not
  // count. If ranks of a host differ, the largest number counts.
  int ranks_on_host = 0;
  // Protection by the job secret on connections between hosts: "headers" (control messages and
  // frame headers) or "payload" (payloads as well). If ranks differ, payload. Nothing is encrypted:
  // docs/reference/security.md. Empty: RONDO_INTEGRITY, else headers.
  std::string integrity{};
  // How this rank waits for others: "auto" (spins on a core of its own, yields a core that ranks
  // share, then sleeps), "spin" (never sleeps) or "sleep" (sleeps at once).
  // docs/reference/waiting.md gives the rules. Empty: RONDO_WAIT, else auto.
  std::string wait{};
  Switch checksum{};        // CRC32C of every payload, checked by the receiver. All ranks alike.
  std::string algorithm{};  // ring, tree, star ...; empty: the planner chooses. All ranks alike.
  std::size_t segment_bytes = 0;  // unit of pipelining; 0: the planner chooses. All ranks alike.
  int depth = 0;                  // segments in flight; 0: the planner chooses. All ranks alike.
  // A file of constants for the planner, from format_constants() or `rondo bench
  // --write-constants`. Rank 0's file counts for all ranks.
  std::string constants{};
  // The planner's constants themselves, for example Communicator::constants() of another
  // communicator: nothing is read and nothing is measured. It comes before `constants`. Rank 0's
  // count for all ranks.
  std::optional<PlanConstants> plan_constants{};
  // Whether connect() measures what links cost, which takes a few milliseconds. Rank 0's value
  // counts for all. No value: it measures if ranks are on several hosts and there is no file of
  // constants.
  std::optional<bool> measure{};
  // Most staging memory, both lanes together; as much again, pinned, for each GPU that is used. 0:
  // RONDO_STAGING_BYTES, else 16 MiB. All ranks alike.
  std::size_t staging_bytes = 0;

  // A file for Prometheus, which node_exporter's textfile collector reads
  // (docs/reference/metrics.md): operations, bytes, what this rank waited for, failures, late
  // ranks. %r in the path becomes the rank, %p the process, %h the host; without %r and %p the rank
  // is put before the last dot. A thread writes it, whole, every metrics_period and when the
  // communicator ends. The folder must exist. Empty: RONDO_METRICS, else none.
  std::string metrics{};
  std::chrono::milliseconds metrics_period{0};  // 0: RONDO_METRICS_PERIOD, else 5 s
  // Labels that every sample gets: {"run=mine", "team=vision"}. Without a `run` it is the name of
  // the file. Empty: RONDO_METRICS_LABELS, else none.
  std::vector<std::string> metrics_labels{};
  // Called about ten times a second while connect() or split() waits for other ranks, on the thread
  // that waits. If it returns true, the call ends with Error(aborted), also on the ranks that it
  // has reached. A communicator keeps a copy for its splits.
  std::function<bool()> interrupted{};

  // Reads the environment, RONDO_* and the variables of torchrun, Open MPI, MPICH/Hydra, Intel MPI
  // and Slurm, and fills in the defaults. connect() does this too; call it only to see the values.
  // Throws Error(invalid_argument), which names the variable, its value and what is possible.
  static Options from_environment();
};

// How one operation runs. All ranks must pass the same priority and scale; the other fields may
// differ.
struct RONDO_API OpOptions {
  // For buffers on a GPU: the CUDA stream (cudaStream_t, CUstream) that the operation comes after.
  // Null: the legacy default stream. Not while it is captured: Error(unsupported). Work::join() is
  // the other end.
  void* stream = nullptr;
  // Time for the whole operation from its start. 0: Options::deadline.
  std::chrono::milliseconds deadline{0};
  Priority priority = Priority::bulk;
  // Factor by which the result of a reduction is multiplied, once. Floating-point types only.
  std::optional<double> scale{};
  // Factor by which this rank's input is multiplied as it is loaded, without another pass over it.
  // A rank without one multiplies by 1. The input itself does not change, unless the call is in
  // place. Only for sum and mean of floating-point types, else Error(invalid_argument). The product
  // is formed in f64 for f64. For other types it is formed in f32 with the factor rounded to f32,
  // and it is not rounded to the type before it is added. So sums of f16 do not overflow on the way
  // where the input alone would. The factor must be finite; for types other than f64 it must be 0,
  // or from 1.18e-38 to 3.4e38 in magnitude. 0 times infinity is NaN. With `scale` and mean the
  // result is scale * (sum of the products) / ranks.
  std::optional<double> input_scale{};
  std::string_view tag{};  // appears in messages and traces; the first 31 bytes are kept
  // Nobody will wait for the operation soon: the background thread begins to drive it at once,
  // which costs a system call in the start. Otherwise it looks after a millisecond or later, unless
  // a thread waits for any operation. May differ between ranks.
  bool unattended = false;
};

}  // namespace rondo
