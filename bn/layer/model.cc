// SPDX-License-Identifier: Apache-2.0
#include "bn/layer/model.h"

#include <fmt/format.h>
#include <rondo/error.h>

#include <cmath>
#include <utility>

namespace rondo::layer {

namespace {

std::size_t checked_channels(std::size_t channels, const BatchNormOptions& options) {
  if (channels == 0 || channels > std::size_t{1} << 32)
    throw Error(Errc::invalid_argument,
                fmt::format("batch norm: {} channels; there must be 1 to 2^32", channels));
  constexpr std::size_t most = std::size_t{1} << 24;
  if (options.device >= 0 && channels > most)
    throw Error(Errc::invalid_argument,
                fmt::format("batch norm layer '{}': {} channels; on a GPU there may be {} at most",
                            options.name, channels, most));
  return channels;
}

// Returns what is wrong with options that may change later; empty if nothing is.
std::string problem_of_changes(const BatchNormOptions& options) {
  const std::optional<double>& momentum = options.momentum;
  if (options.threads < 0 || options.threads > 1024)
    return fmt::format("threads is {}; it must be 0 to 1024", options.threads);
  if (options.deadline.count() < 0) return "the deadline is negative";
  if (momentum && !(*momentum >= 0 && *momentum <= 1))
    return fmt::format("momentum is {}; it must be 0 to 1, or no value for the cumulative average",
                       *momentum);
  return {};
}

std::string problem_of(const BatchNormOptions& options) {
  if (!is_float_of_layer(options.type))
    return fmt::format("type is {}; activations must be f64, f32, f16 or bf16",
                       name_of(options.type));
  if (options.layout != TensorLayout::nchw && options.layout != TensorLayout::nhwc)
    return "layout is neither nchw nor nhwc";
  if (!(options.epsilon >= 0 && std::isfinite(options.epsilon)))
    return fmt::format("epsilon is {}; it must be finite and not negative", options.epsilon);
  return problem_of_changes(options);
}

BatchNormOptions checked(BatchNormOptions options) {
  if (const std::string problem = problem_of(options); !problem.empty())
    throw Error(Errc::invalid_argument,
                fmt::format("batch norm layer '{}': {}", options.name, problem));
  return options;
}

}  // namespace

bool is_float_of_layer(DType type) noexcept {
  return type == DType::f64 || type == DType::f32 || type == DType::f16 || type == DType::bf16;
}

Model::Model(Communicator& of, std::size_t channels_of_layer, BatchNormOptions wanted)
    : communicator(&of),
      shared(&Shared::of(of)),
      rank(of.rank()),
      channels(checked_channels(channels_of_layer, wanted)),
      options(checked(std::move(wanted))),
      name(std::in_place, shared->names(), options.name),
      identity(std::make_shared<statistics::Identity>(options, name->number(), channels)) {
  shared->join(*this);
}

Model::~Model() {
  if (shared != nullptr) shared->leave(*this);
}

void Model::orphan() noexcept {
  name.reset();
  shared = nullptr;
  communicator = nullptr;
}

void Model::take_report(double count_of_all, bool far) noexcept {
  count = count_of_all;
  if (far) doubts = doubts_after_far;
  // The caller may have set the number since.
  if (std::exchange(counted_unseen, false) && count == 0) --batches;
}

std::string Model::who() const {
  return fmt::format("rank {}: batch norm {}", rank, identity->title);
}

void Model::set_options(const BatchNormOptions& wanted) {
  BatchNormOptions next = options;
  next.momentum = wanted.momentum;
  next.threads = wanted.threads;
  next.deadline = wanted.deadline;
  std::string problem = problem_of_changes(next);
  if (problem.empty() && next != wanted)
    problem = "only momentum, threads and deadline of a layer can change";
  if (!problem.empty()) throw Error(Errc::invalid_argument, fmt::format("{}: {}", who(), problem));
  identity = std::make_shared<statistics::Identity>(*identity, next);
  options = std::move(next);
}

}  // namespace rondo::layer
