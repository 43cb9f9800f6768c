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

// Describes this machine and its environment as Rondo sees them: the output of `rondo info`.
// Everything is a copy; nothing is kept open.

struct TransportInfo {
  std::string name;
  bool available = false;
  std::string why;  // why not; or which ranks it connects
};

struct InterfaceInfo {
  std::string name, address;
  bool loopback = false;
  bool chosen = false;  // by Options::interfaces
  std::string why;      // why not, or for what
};

// A port of an RDMA device.
struct RdmaPortInfo {
  std::string device;  // "mlx5_0"
  unsigned port = 1;
  bool usable = false;
  std::string text;  // "RoCE v2 (IPv4), GID 1 10.0.0.7 on eth2, MTU 4096"; or why it is not usable
};

// A GPU, as CUDA's driver describes it.
struct GpuInfo {
  int device = 0;           // its number, for Buffer::device
  std::string name;         // "NVIDIA H100 80GB HBM3"
  std::string pci_address;  // "0000:17:00.0"
  std::string uuid;         // "GPU-9f6e8c0a-...", as nvidia-smi -L prints it
  std::uint64_t memory_bytes = 0;
  int capability_major = 0, capability_minor = 0;  // the compute capability, 9.0
  bool integrated = false;                         // it shares the memory of the processor
  // The GPUs of this process whose memory this one can reach directly. The driver says so; an
  // IOMMU, or a virtual machine, can still be in the way.
  std::vector<int> peers;
  // Why processes of a host cannot share its memory by descriptors of virtual memory (cuMemCreate)
  // or by legacy handles (cuIpcGetMemHandle); empty when they can.
  std::string why_no_descriptors, why_no_handles;
  // Why several processes cannot use it at once; empty when they can.
  std::string why_exclusive;
  std::string error;  // what the driver would not tell
};

// This process's GPUs, as CUDA's driver reports them.
struct GpuReport {
  std::string driver_version;  // the newest CUDA that the driver knows: "13.0"
  std::vector<GpuInfo> gpus;
  std::string why;  // why there is no GPU, with the remedy
  // Why this build has no kernels for GPUs, so that the processor combines buffers there; empty
  // when it has.
  std::string why_no_kernels;
};

// A resource limit of this process; no value means unlimited.
struct LimitInfo {
  std::string name;  // "open files", "locked memory (bytes)"
  std::optional<std::uint64_t> soft, hard;
};

struct VariableInfo {
  std::string name, value;  // of a secret only its length
};

// Returns what connect() would make of the options and the environment, without connecting.
struct PlaceInfo {
  int rank = 0;
  int size = 1;
  std::string rendezvous;  // URL; empty if there is one rank, or a store
  // Where rank and size come from: "torchrun", "Open MPI", "RONDO_RANK", "options" ...; "alone" if
  // nothing gives them.
  std::string source;
  std::string error;  // why this cannot be known; then nothing else is set
};

struct SystemInfo {
  std::string version;
  std::string host;           // its name
  std::string host_identity;  // ranks with the same one share loopback
  // The number of cores that this process can use at a time: those of its affinity mask, or of its
  // CPU quota if that is smaller.
  unsigned cores = 0;
  unsigned mask_cores = 0;            // of the affinity mask
  std::optional<double> quota_cores;  // of the smallest CPU quota of its control groups
  std::string quota_file;             // the file that sets this quota
  std::string quota_risk;             // a warning if the quota is smaller than the mask
  std::uint64_t memory_bytes = 0;
  std::string reduce_kernels;  // instruction set chosen for reductions: "avx512"
  std::vector<TransportInfo> transports;
  std::vector<InterfaceInfo> interfaces;
  // Returns what is wrong with the filters ("interface 'eth9' does not exist ...").
  std::string interface_error;
  std::vector<RdmaPortInfo> rdma_ports;
  std::string rdma_error;  // what is wrong with the filters of RDMA devices
  std::vector<LimitInfo> limits;
  std::vector<VariableInfo> variables;  // set ones, of Rondo and of known launchers
  PlaceInfo place;
};

// Never throws for a bad environment or bad filters: the fields say what is wrong.
RONDO_API SystemInfo gather_info(const Options& options);

// Asks CUDA's driver for the GPUs. Throws nothing for a missing driver: see GpuReport::why. The
// first use of the driver in a process takes up to a second, so this is not part of gather_info().
// Makes no context: no memory of a GPU is used, and an exclusive GPU stays free.
RONDO_API GpuReport gather_gpus();

// Descriptors, threads, ports and memory that one rank of a communicator needs from its process and
// host: the table of docs/reference/limits.md.
struct NeedsInfo {
  std::size_t descriptors_to_connect = 0;  // at most, before connect() returns
  std::size_t descriptors_idle = 0;        // after connect(), until something is sent over tcp
  // After every link has been used. allocate() adds one for this rank's memory, and one for each
  // other rank of the host that has allocated, however often they do.
  std::size_t descriptors_most = 0;
  std::size_t threads = 0;  // of Rondo's own
  // TCP ports that this rank listens on for data. Rank 0 also listens for the other ranks to join:
  // at the port of tcp://, else at one more port for each address.
  std::size_t ports = 0;
  std::size_t staging_bytes = 0;  // most staging memory, which is private
  // Shared memory that this rank makes and every rank of its host maps. A page counts once it is
  // used.
  std::size_t shared_bytes = 0;
};
// Computes the needs of rank `rank` of `ranks`, with `ranks_on_host` ranks on its host. Reads the
// environment for options that are not set. Throws Error(invalid_argument).
RONDO_API NeedsInfo compute_needs(int ranks, int ranks_on_host, int rank, const Options& options);

// Returns the place alone, which is cheap. Throws nothing for a bad environment: see
// PlaceInfo::error.
RONDO_API PlaceInfo gather_place(const Options& options);

}  // namespace rondo
