// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bn/layer/kernels/table.h"
#include "bn/layer/place.h"
#include "bn/layer/pool.h"

namespace rondo::layer {

// A layer on the processor. Passes over activations are cut into tasks for threads. Sums are taken
// in blocks that depend on the shape alone, and blocks are added in order: the number of threads
// does not change the result.
class HostPlace final : public Place {
 public:
  HostPlace(Pool& pool, int threads, DType type, std::size_t channels, std::size_t array_elements);

  void set_threads(int threads) noexcept override { threads_ = threads; }
  double* arrays() const noexcept override { return arrays_.get(); }
  std::unique_ptr<RecordMemory> make_record(std::size_t elements) const override;
  std::string problem_of(const void*, std::size_t) override { return {}; }
  void sum(const SumTask& task) override;
  void fold(const ChannelArguments& arguments) override;
  void run(const ChannelArguments& arguments) override;
  void map(const MapTask& task) override;
  int repeats() const noexcept override { return 2; }

 private:
  // A part of the activations: samples (rows in nhwc) x channels.
  struct Part {
    std::size_t first, count, channel, channels;
  };
  // How activations are cut: `blocks` of rows, each in `bands` of channels.
  struct Grid {
    std::size_t rows, blocks, bands, channels;
    bool runs;  // elements of one channel are contiguous
    std::size_t tasks() const noexcept { return blocks * bands; }
    Part part(std::size_t task) const noexcept;
  };
  Grid grid_of(const Activations& x, TensorLayout layout) const noexcept;
  template <class Task>
  void for_each_part(const Activations& x, const Grid& grid, Task task);
  bool streams(const Grid& grid, const Activations& x, const void* out) const noexcept;
  std::size_t bytes_of(const Activations& x) const noexcept;
  // Null stays null.
  const char* at(const void* data, std::size_t element) const noexcept;

  Pool* pool_;
  int threads_;
  DType type_;
  std::size_t channels_;
  const Kernels* kernels_;
  const std::unique_ptr<double[]> arrays_;
  std::vector<double> centers_;  // as the kernels of 16-bit types can use them
  std::vector<double> sums_;     // of each block: first[channels], second[channels]
};

}  // namespace rondo::layer
