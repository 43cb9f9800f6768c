// SPDX-License-Identifier: Apache-2.0
#include "bn/layer/passes.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace rondo::layer {

namespace {

constexpr std::size_t most_tasks = 32;
// A task of this size takes some tens of microseconds, longer than waking a thread takes.
constexpr std::size_t task_bytes = std::size_t{512} << 10;
// Outputs larger than this leave the nearer caches anyway. Stored past the caches, their memory
// need not be read first. That pays if runs of a channel are long, or rows begin at cache lines.
constexpr std::size_t streamed_bytes = std::size_t{4} << 20, streamed_run_bytes = 2048,
                      cache_line_bytes = 64;

std::size_t ceiling(std::size_t a, std::size_t b) {
  return (a + b - 1) / b;
}

}  // namespace

Passes::Passes(Pool& pool, int threads, DType type, TensorLayout layout, std::size_t channels)
    : pool_(&pool),
      threads_(threads),
      type_(type),
      in_f32_(size_of(type) == 2),
      layout_(layout),
      channels_(channels),
      kernels_(&best_kernels(type)),
      centers_(channels) {}

std::size_t Passes::bytes_of(const Activations& x) const noexcept {
  return x.samples * x.spatial * channels_ * size_of(type_);
}

const char* Passes::at(const void* data, std::size_t element) const noexcept {
  return data == nullptr ? nullptr : static_cast<const char*>(data) + element * size_of(type_);
}

Passes::Grid Passes::grid_of(const Activations& x) const noexcept {
  Grid grid{};
  grid.runs = layout_of(x) == TensorLayout::nchw && x.spatial > 1;
  grid.rows = grid.runs ? x.samples : x.samples * x.spatial;
  grid.channels = channels_;
  const std::size_t wanted = std::clamp(bytes_of(x) / task_bytes, std::size_t{1}, most_tasks);
  grid.blocks = std::min(wanted, std::max<std::size_t>(grid.rows, 1));
  grid.bands = grid.runs ? std::min(ceiling(wanted, grid.blocks), channels_) : 1;
  return grid;
}

Passes::Part Passes::Grid::part(std::size_t task) const noexcept {
  const std::size_t block = task / bands, band = task % bands;
  const std::size_t first = rows * block / blocks, last = rows * (block + 1) / blocks;
  const std::size_t channel = channels * band / bands, end = channels * (band + 1) / bands;
  return {first, last - first, channel, end - channel};
}

template <class Task>
void Passes::for_each_part(const Activations& x, const Grid& grid, Task task) {
  auto one = [&](std::size_t i) {
    const Part part = grid.part(i);
    if (!grid.runs) {
      task(i, part, part.first * channels_, 0);
      kernels_->fence();
      return;
    }
    for (std::size_t sample = part.first; sample < part.first + part.count; ++sample)
      for (std::size_t c = part.channel; c < part.channel + part.channels; ++c)
        task(i, part, (sample * channels_ + c) * x.spatial, c);
    kernels_->fence();
  };
  pool_->run(threads_, grid.tasks(), one);
}

void Passes::add_up(const Activations& x, const void* dy, const Loops& loops, const double* points,
                    std::span<double> first, std::span<double> second) {
  const Grid grid = grid_of(x);
  const std::size_t each = 2 * channels_;
  blocks_.assign(std::max(grid.blocks * each, blocks_.size()), 0.0);
  for_each_part(
      x, grid, [&](std::size_t task, const Part& part, std::size_t element, std::size_t c) {
        double* const to = blocks_.data() + task / grid.bands * each;
        const char *from = at(x.data, element), *gradients = at(dy, element);
        if (grid.runs)
          loops.run_sums(from, gradients, x.spatial, points[c], to[c], to[channels_ + c]);
        else
          loops.rows_sums(from, gradients, part.count, channels_, points, to, to + channels_);
      });
  std::fill(first.begin(), first.end(), 0.0);
  std::fill(second.begin(), second.end(), 0.0);
  for (std::size_t block = 0; block < grid.blocks; ++block) {
    const double* const from = blocks_.data() + block * each;
    for (std::size_t c = 0; c < channels_; ++c) {
      first[c] += from[c];
      second[c] += from[channels_ + c];
    }
  }
}

bool Passes::moments_about(const Activations& x, statistics::LocalMoments& local) {
  add_up(x, nullptr, kernels_->forward, local.point.data(), local.offset, local.m2);
  bool good = true;
  for (std::size_t c = 0; c < channels_; ++c) {
    const statistics::LocalChannel one = statistics::moments_about(
        local.point[c], local.count, local.offset[c], local.m2[c], in_f32_);
    local.offset[c] = one.offset;
    local.m2[c] = one.m2;
    good &= !(one.far && std::isfinite(one.offset));
  }
  return good;
}

bool Passes::moments_about_mean(const Activations& x, statistics::LocalMoments& local) {
  for (std::size_t c = 0; c < channels_; ++c)
    local.point[c] = center(local.point[c] + local.offset[c]);
  return moments_about(x, local);
}

void Passes::moments(const Activations& x, statistics::LocalMoments& local,
                     std::span<const double> near) {
  local.count = static_cast<double>(x.samples * x.spatial);
  if (local.count == 0) return;
  if (!near.empty()) {
    std::transform(near.begin(), near.end(), local.point.begin(),
                   [this](double mean) { return center(mean); });
    // From a point very far away not even the mean can be computed.
    if (moments_about(x, local) || moments_about_mean(x, local)) return;
  }
  kernels_->elements(x.data, layout_of(x) == TensorLayout::nchw ? x.spatial : 1, channels_,
                     local.point.data());
  if (!moments_about(x, local)) moments_about_mean(x, local);
}

double Passes::center(double mean) const noexcept {
  return in_f32_ ? static_cast<double>(static_cast<float>(mean)) : mean;
}

void Passes::gradient_sums(const Activations& x, const void* dy, std::span<const double> mean,
                           std::span<double> first, std::span<double> second) {
  for (std::size_t c = 0; c < channels_; ++c) centers_[c] = center(mean[c]);
  add_up(x, dy, kernels_->backward, centers_.data(), first, second);
  for (std::size_t c = 0; c < channels_; ++c) second[c] += (centers_[c] - mean[c]) * first[c];
}

bool Passes::streams(const Grid& grid, const Activations& x, const void* out) const noexcept {
  if (bytes_of(x) <= streamed_bytes) return false;
  if (grid.runs) return x.spatial * size_of(type_) >= streamed_run_bytes;
  return channels_ * size_of(type_) % cache_line_bytes == 0 &&
         reinterpret_cast<std::uintptr_t>(out) % cache_line_bytes == 0;
}

void Passes::map(const Activations& x, const void* dy, void* out, const Loops& loops,
                 const Coefficients& by_channel) {
  const Grid grid = grid_of(x);
  const bool streamed = streams(grid, x, out);
  for_each_part(x, grid, [&](std::size_t, const Part& part, std::size_t element, std::size_t c) {
    const char *from = at(x.data, element), *gradients = at(dy, element);
    char* const to = static_cast<char*>(out) + element * size_of(type_);
    if (grid.runs)
      loops.run_map(from, gradients, to, x.spatial, by_channel, c, streamed);
    else
      loops.rows_map(from, gradients, to, part.count, channels_, by_channel, streamed);
  });
}

}  // namespace rondo::layer
