// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <rondo/export.h>
#include <rondo/options.h>

namespace rondo {

// What Rondo sees of this machine and of its environment: what `rondo info` prints. Plain copies,
// nothing is kept open.

struct TransportInfo {
  std::string name;
  bool available = false;
  std::string why;  // why not, or on what it stands
};

struct InterfaceInfo {
  std::string name, address;
  bool loopback = false;
  bool chosen = false;  // by Options::interfaces
  std::string why;      // why not, or for what
};

// A resource limit of this process; no value means unlimited.
struct LimitInfo {
  std::string name;  // "open files", "locked memory (bytes)"
  std::optional<std::uint64_t> soft, hard;
};

struct VariableInfo {
  std::string name, value;  // the value of a secret is only said to be there
};

// What connect() would make of the options and the environment, without connecting.
struct PlaceInfo {
  int rank = 0;
  int size = 1;
  std::string rendezvous;  // empty when alone
  // What said so: "torchrun", "Open MPI", "RONDO_RANK" ...; "alone" when nothing did.
  std::string source;
  std::string error;  // why it cannot be known; then nothing else is set
};

struct SystemInfo {
  std::string version;
  std::string host;           // its name
  std::string host_identity;  // ranks with the same one share loopback
  unsigned cores = 0;         // that this process may run on
  std::uint64_t memory_bytes = 0;
  std::string reduce_kernels;  // instruction set chosen for reductions: "avx512"
  std::vector<TransportInfo> transports;
  std::vector<InterfaceInfo> interfaces;
  // Why the filters cannot be meant ("interface 'eth9' does not exist ...").
  std::string interface_error;
  std::vector<LimitInfo> limits;
  std::vector<VariableInfo> variables;  // of Rondo and of the launchers it knows, that are set
  PlaceInfo place;
};

// Never throws for a bad environment or bad filters: the fields say what is wrong.
RONDO_API SystemInfo gather_info(const Options& options);

// What one rank of a communicator needs of its process and host: the table of docs/limits.md.
struct NeedsInfo {
  std::size_t descriptors_to_connect = 0;  // at most, before connect() returns
  std::size_t descriptors_idle = 0;        // afterwards, while nothing has been sent over tcp
  // When every link has been used. allocate() adds one for this rank's memory, and one for each
  // rank of the host that has allocated, however often they do.
  std::size_t descriptors_most = 0;
  std::size_t threads = 0;  // of Rondo's own
  // TCP ports to listen on; rank 0 of a tcp:// or file:// rendezvous one more.
  std::size_t ports = 0;
  std::size_t staging_bytes = 0;  // bound of private memory for data on its way
  // Shared memory that this rank makes and every rank of the host maps; pages count once used.
  std::size_t shared_bytes = 0;
};
// Computes the needs of rank `rank` of `ranks`, with `ranks_on_host` ranks on its host. Throws
// Error(invalid_argument).
RONDO_API NeedsInfo compute_needs(int ranks, int ranks_on_host, int rank, const Options& options);

// The place alone: cheap.
RONDO_API PlaceInfo gather_place(const Options& options);

}  // namespace rondo
