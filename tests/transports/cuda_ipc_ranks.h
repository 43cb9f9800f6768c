// SPDX-License-Identifier: Apache-2.0
//
// Ranks with windows on memory of GPUs, over the fake driver.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/fake/control.h"
#include "shm_helpers.h"
#include "transports/cuda_ipc/cuda_ipc.h"

namespace rondo::testing {

using cuda_ipc::CudaWindows;
using Transports = std::vector<std::unique_ptr<transports::Transport>>;

// One rank: its windows, and the GPU that it uses.
struct IpcRank {
  IpcRank(int rank, transports::Transport& its_transport, int ordinal = 0)
      : transport(its_transport),
        gpus(std::make_shared<device::Gpus>()),
        gpu(gpus->gpu(ordinal)),
        windows(std::in_place, rank, *transport.windows(),
                dynamic_cast<host::DescriptorPassing&>(*transport.windows()), gpus) {}

  // Takes what peers have sent, as a rank does before a call and while it waits.
  void turn() {
    transport.prepare_sleep();
    transport.prepare_sleep();
    windows->catch_up(gpu);
  }

  transports::Transport& transport;
  std::shared_ptr<device::Gpus> gpus;
  const device::Gpu& gpu;
  std::optional<CudaWindows> windows;
};

class IpcRanks {
 public:
  // ordinals: of the GPU of each rank.
  explicit IpcRanks(const std::vector<int>& ordinals)
      : transports_(shm_transports(static_cast<int>(ordinals.size()))) {
    for (std::size_t i = 0; i < ordinals.size(); ++i)
      ranks_.push_back(
          std::make_unique<IpcRank>(static_cast<int>(i), *transports_[i], ordinals[i]));
  }
  IpcRank& operator[](std::size_t rank) { return *ranks_[rank]; }
  // As many rounds as it takes where nothing stands in the way.
  transports::WindowPlace find(std::size_t owner, const void* data, std::size_t bytes) {
    ranks_[owner]->windows->find(data, bytes);
    ranks_[owner]->turn();
    for (const auto& rank : ranks_) rank->turn();
    return ranks_[owner]->windows->find(data, bytes);
  }
  Transports& transports() { return transports_; }

 private:
  Transports transports_;
  std::vector<std::unique_ptr<IpcRank>> ranks_;
};

inline void write_text(const std::byte* to, const char* text) {
  FakeCuda().write(reinterpret_cast<FakeCuda::Address>(to), text, std::strlen(text) + 1);
}

inline std::string text_at(const std::byte* from) {
  std::array<char, 32> text{};
  FakeCuda().read(text.data(), reinterpret_cast<FakeCuda::Address>(from), text.size() - 1);
  return text.data();
}

// Memory as cudaMalloc gives it.
class Program {
 public:
  Program(IpcRank& rank, std::size_t bytes, int ordinal = 0)
      : rank_(rank), memory_(rank.gpus->gpu(ordinal), bytes) {}
  std::byte* data() const { return reinterpret_cast<std::byte*>(memory_.address()); }
  std::unique_ptr<transports::Registration> register_part(std::size_t offset, std::size_t bytes) {
    return rank_.windows->register_memory(0, {data() + offset, bytes});
  }

 private:
  IpcRank& rank_;
  device::DeviceMemory memory_;
};

}  // namespace rondo::testing
