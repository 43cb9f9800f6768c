// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <rondo/batch_norm.h>

#include "bn/layer/kernels/table.h"
#include "bn/layer/pool.h"
#include "bn/statistics/moments.h"

namespace rondo::layer {

// The passes over activations, cut into tasks for threads. Sums are taken in blocks that depend on
// the shape alone, and blocks are added in order: the number of threads does not change the result.
// Thread-bound.
class Passes {
 public:
  Passes(Pool& pool, int threads, DType type, TensorLayout layout, std::size_t channels);

  void set_threads(int threads) noexcept { threads_ = threads; }
  // Computes the moments of one rank. Without samples sets only local.count. near: a guess of the
  // mean of each channel; empty: no guess.
  void moments(const Activations& x, statistics::LocalMoments& local, std::span<const double> near);
  // Computes the sums of dy and of dy * (x - mean).
  void gradient_sums(const Activations& x, const void* dy, std::span<const double> mean,
                     std::span<double> first, std::span<double> second);
  void forward(const Activations& x, void* y, const Coefficients& by_channel) {
    map(x, nullptr, y, kernels_->forward, by_channel);
  }
  void backward(const Activations& x, const void* dy, void* dx, const Coefficients& by_channel) {
    map(x, dy, dx, kernels_->backward, by_channel);
  }

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
  TensorLayout layout_of(const Activations& x) const noexcept { return x.layout.value_or(layout_); }
  Grid grid_of(const Activations& x) const noexcept;
  template <class Task>
  void for_each_part(const Activations& x, const Grid& grid, Task task);
  // Adds the sums of each part to those of its block, then the blocks. points: by channel.
  void add_up(const Activations& x, const void* dy, const Loops& loops, const double* points,
              std::span<double> first, std::span<double> second);
  void map(const Activations& x, const void* dy, void* out, const Loops& loops,
           const Coefficients& by_channel);
  // Computes moments about local.point; returns whether it was near enough to the mean of every
  // channel.
  bool moments_about(const Activations& x, statistics::LocalMoments& local);
  bool moments_about_mean(const Activations& x, statistics::LocalMoments& local);
  // Returns the mean, or a value near it that the kernels of this type can use.
  double center(double mean) const noexcept;
  bool streams(const Grid& grid, const Activations& x, const void* out) const noexcept;
  std::size_t bytes_of(const Activations& x) const noexcept;
  // Null stays null.
  const char* at(const void* data, std::size_t element) const noexcept;

  Pool* pool_;
  int threads_;
  DType type_;
  bool in_f32_;  // kernels add a few elements in f32
  TensorLayout layout_;
  std::size_t channels_;
  const Kernels* kernels_;
  std::vector<double> centers_;
  std::vector<double> blocks_;  // of each block: first[channels], second[channels]
};

}  // namespace rondo::layer
