// SPDX-License-Identifier: Apache-2.0
#include "bn/layer/host_place.h"

#include <algorithm>
#include <optional>

#include "bn/layer/kernels/channels.h"
#include "bn/layer/kernels/fold.h"

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

class HostRecord final : public RecordMemory {
 public:
  explicit HostRecord(std::size_t elements) : values_(new double[elements]()) {}
  double* data() const noexcept override { return values_.get(); }

 private:
  const std::unique_ptr<double[]> values_;
};

// Returns the type of all values, or nothing if they have several.
std::optional<DType> type_of_values(const ChannelArguments& arguments) noexcept {
  std::optional<DType> type;
  for (const Values* values :
       {&arguments.gamma, &arguments.beta, &arguments.running_mean, &arguments.running_variance,
        &arguments.gamma_gradient, &arguments.beta_gradient}) {
    if (values->data == nullptr) continue;
    if (type && *type != values->type) return std::nullopt;
    type = values->type;
  }
  return type;
}

// Calls function.operator()<task>() if `task` is one of `tasks`.
template <ChannelTask... tasks, class Function>
void with_task(ChannelTask task, Function function) {
  ((task == tasks ? function.template operator()<tasks>() : void()), ...);
}

// The task is known outside of the loops, so it costs nothing in them. The arguments are copies, so
// no store can change them, and the compiler knows that.
template <ChannelTask task>
[[gnu::flatten]] void fold_as(ChannelArguments arguments, const double* sums) {
  arguments.task = task;
  for (std::size_t c = 0; c < arguments.channels; ++c)
    ChannelFold::run(arguments, c, sums[c], sums[arguments.channels + c]);
  if (arguments.section.data == nullptr) return;
  std::uint64_t history = 0;
  for (std::size_t c = 0; c < arguments.channels; ++c)
    history += ChannelFold::history_term(arguments, c);
  ChannelFold::put_head(arguments, history);
}
template <ChannelTask task, class In>
[[gnu::flatten]] void run_as(ChannelArguments arguments) {
  arguments.task = task;
  const Count count = Channel<In>::count_of(arguments);
  for (std::size_t c = 0; c < arguments.channels; ++c) Channel<In>::run(arguments, c, count);
}

}  // namespace

HostPlace::HostPlace(Pool& pool, int threads, DType type, std::size_t channels,
                     std::size_t array_elements)
    : pool_(&pool),
      threads_(threads),
      type_(type),
      channels_(channels),
      kernels_(&best_kernels(type)),
      arrays_(new double[array_elements]()) {}

std::unique_ptr<RecordMemory> HostPlace::make_record(std::size_t elements) const {
  return std::make_unique<HostRecord>(elements);
}

std::size_t HostPlace::bytes_of(const Activations& x) const noexcept {
  return x.samples * x.spatial * channels_ * size_of(type_);
}

const char* HostPlace::at(const void* data, std::size_t element) const noexcept {
  return data == nullptr ? nullptr : static_cast<const char*>(data) + element * size_of(type_);
}

HostPlace::Grid HostPlace::grid_of(const Activations& x, TensorLayout layout) const noexcept {
  Grid grid{};
  grid.runs = layout == TensorLayout::nchw && x.spatial > 1;
  grid.rows = grid.runs ? x.samples : x.samples * x.spatial;
  grid.channels = channels_;
  const std::size_t wanted = std::clamp(bytes_of(x) / task_bytes, std::size_t{1}, most_tasks);
  grid.blocks = std::min(wanted, std::max<std::size_t>(grid.rows, 1));
  grid.bands = grid.runs ? std::min(ceiling(wanted, grid.blocks), channels_) : 1;
  return grid;
}

HostPlace::Part HostPlace::Grid::part(std::size_t task) const noexcept {
  const std::size_t block = task / bands, band = task % bands;
  const std::size_t first = rows * block / blocks, last = rows * (block + 1) / blocks;
  const std::size_t channel = channels * band / bands, end = channels * (band + 1) / bands;
  return {first, last - first, channel, end - channel};
}

template <class Task>
void HostPlace::for_each_part(const Activations& x, const Grid& grid, Task task) {
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

void HostPlace::sum(const SumTask& task) {
  if (task.wanted != nullptr && std::none_of(task.wanted, task.wanted + channels_,
                                             [](std::uint32_t one) { return one != 0; }))
    return;
  const double* centers = task.center;
  if (size_of(type_) == 2) {  // the kernels add a few elements in f32
    centers_.resize(channels_);
    std::transform(centers, centers + channels_, centers_.begin(),
                   [](double center) { return static_cast<double>(static_cast<float>(center)); });
    centers = centers_.data();
  }
  const Loops& loops = task.dy == nullptr ? kernels_->forward : kernels_->backward;
  const Grid grid = grid_of(task.x, task.layout);
  const std::size_t each = 2 * channels_;
  sums_.assign(std::max(grid.blocks * each, sums_.size()), 0.0);
  for_each_part(
      task.x, grid, [&](std::size_t number, const Part& part, std::size_t element, std::size_t c) {
        double* const to = sums_.data() + number / grid.bands * each;
        const char *from = at(task.x.data, element), *gradients = at(task.dy, element);
        if (grid.runs)
          loops.run_sums(from, gradients, task.x.spatial, centers[c], to[c], to[channels_ + c]);
        else
          loops.rows_sums(from, gradients, part.count, channels_, centers, to, to + channels_);
      });
  for (std::size_t block = 1; block < grid.blocks; ++block)
    for (std::size_t i = 0; i < each; ++i) sums_[i] += sums_[block * each + i];
}

void HostPlace::fold(const ChannelArguments& arguments) {
  sums_.resize(std::max(2 * channels_, sums_.size()));
  using enum ChannelTask;
  with_task<moments, moments_again, nothing, gradients>(
      arguments.task, [&]<ChannelTask task>() { fold_as<task>(arguments, sums_.data()); });
}

// Most layers have values of one type. To choose it for each value would take longer than the rest.
void HostPlace::run(const ChannelArguments& arguments) {
  const std::optional<DType> type = type_of_values(arguments);
  using enum ChannelTask;
  with_task<fill, merge, forward, merge_forward, running, backward>(
      arguments.task, [&]<ChannelTask task>() {
        if (type)
          with_real(*type,
                    [&](auto element) { run_as<task, ValuesOf<decltype(element)>>(arguments); });
        else
          run_as<task, AnyValues>(arguments);
      });
}

bool HostPlace::streams(const Grid& grid, const Activations& x, const void* out) const noexcept {
  if (bytes_of(x) <= streamed_bytes) return false;
  if (grid.runs) return x.spatial * size_of(type_) >= streamed_run_bytes;
  return channels_ * size_of(type_) % cache_line_bytes == 0 &&
         reinterpret_cast<std::uintptr_t>(out) % cache_line_bytes == 0;
}

void HostPlace::map(const MapTask& task) {
  const Loops& loops = task.dy == nullptr ? kernels_->forward : kernels_->backward;
  const Grid grid = grid_of(task.x, task.layout);
  const bool streamed = streams(grid, task.x, task.out);
  const Coefficients lines{task.lines, channels_};
  for_each_part(task.x, grid,
                [&](std::size_t, const Part& part, std::size_t element, std::size_t c) {
                  const char *from = at(task.x.data, element), *gradients = at(task.dy, element);
                  char* const to = static_cast<char*>(task.out) + element * size_of(type_);
                  if (grid.runs)
                    loops.run_map(from, gradients, to, task.x.spatial, lines, c, streamed);
                  else
                    loops.rows_map(from, gradients, to, part.count, channels_, lines, streamed);
                });
}

}  // namespace rondo::layer
