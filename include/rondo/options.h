// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/export.h>
#include <rondo/types.h>

namespace rondo {

class Store;

// How a communicator is made. from_environment() fills it from the environment: see docs/environment.md. connect(Options{...}) uses
// what the program gives, and the launcher's variables only for what is needed to join (rank, size, rendezvous, secret).
struct RONDO_API Options {
  int rank = -1;  // -1: from the launcher's variables
  int size = 0;   // 0: likewise
  // env:// (the launcher's variables), tcp://host:port (rank 0 listens there) or file:///path (a file that all ranks share).
  std::string rendezvous = "env://";
  Store* store = nullptr;  // when given, used instead of the URL; outlives connect()
  std::string secret;      // shared by all ranks; empty: only ranks of this host are accepted
  std::chrono::milliseconds connect_deadline{30'000};  // for joining
  std::chrono::milliseconds deadline{300'000};  // for a whole operation, unless OpOptions says otherwise
  std::vector<std::string>
      transports;  // those allowed, empty: all; the nearest one that reaches a peer is used
  // Lists of interfaces and networks: "eth0,10.0.0.0/8". A list that begins with ^ excludes all that it names ("^docker0,lo");
  // otherwise ^ before an item excludes that item ("eth*,^eth3"). Empty: any.
  std::vector<std::string> interfaces;
  // TCP connections between two interfaces, 1 to 16; where ranks differ the smaller number counts.
  int connections = 1;
  std::uint16_t port_first = 0;  // listening ports; 0: any
  std::uint16_t port_last = 0;
  bool reproducible = false;  // bits depend on the inputs and the number of ranks alone
  // Ranks that say the same count as ranks of one host when algorithms are chosen and laid out; at most 16384 bytes. Empty: those
  // that share boot and network namespace. What reaches what does not depend on it.
  std::string host;
  bool checksum = false;          // CRC32C of every payload, checked by the receiver
  std::string algorithm;          // ring, tree, star ...; empty: the planner chooses
  std::size_t segment_bytes = 0;  // unit of pipelining; 0: the planner chooses
  int depth = 0;                  // segments in flight; 0: the planner chooses
  // A file of constants for the planner (format_constants() in plan.h, rondo bench --write-constants); rank 0's counts for all.
  std::string constants;
  // Whether connect() measures what links cost, a few milliseconds; likewise rank 0's wish. No value: where ranks stand on several
  // hosts, unless there is a file.
  std::optional<bool> measure;
  std::size_t staging_bytes = std::size_t{16} << 20;  // bound of staging memory, both lanes together

  // Reads RONDO_* and the variables of torchrun, Open MPI, MPICH/Hydra, Intel MPI and Slurm. Throws Error(invalid_argument)
  // that names the variable, its value and what is possible.
  static Options from_environment();
};

// How one operation runs. All ranks must pass the same priority and scale.
struct RONDO_API OpOptions {
  void* stream = nullptr;                 // CUDA stream that orders the operation; host buffers ignore it
  std::chrono::milliseconds deadline{0};  // for the whole operation from its start; 0: Options::deadline
  Priority priority = Priority::bulk;
  std::optional<double>
      scale{};             // the result of a reduction is multiplied by it once; floating-point types only
  std::string_view tag{};  // appears in messages and traces; the first 31 bytes are kept
  const void* owner = nullptr;  // of the bulk order, for its own operations: see Communicator::reserve_bulk
};

}  // namespace rondo
