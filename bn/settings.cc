// SPDX-License-Identifier: Apache-2.0
#include "bn/settings.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <vector>

#include "base/mix.h"

namespace rondo::bn {

namespace {

constexpr std::size_t settings = 8;
constexpr const char* names[settings] = {"type",   "layout", "epsilon",       "momentum",
                                         "affine", "bias",   "track_running", "on a GPU"};
constexpr double no_momentum = -1;  // momentum itself is 0 to 1

std::array<std::uint64_t, settings> values_of(const BatchNormOptions& options) noexcept {
  return {static_cast<std::uint64_t>(options.type),
          static_cast<std::uint64_t>(options.layout),
          std::bit_cast<std::uint64_t>(options.epsilon),
          std::bit_cast<std::uint64_t>(options.momentum.value_or(no_momentum)),
          options.affine ? 1u : 0u,
          options.bias ? 1u : 0u,
          options.track_running ? 1u : 0u,
          options.device >= 0 ? 1u : 0u};
}

std::string text_of(const BatchNormOptions& options, std::size_t setting) {
  switch (setting) {
    case 0:
      return std::string(name_of(options.type));
    case 1:
      return options.layout == TensorLayout::nchw ? "nchw" : "nhwc";
    case 2:
      return fmt::format("{}", options.epsilon);
    case 3:
      return options.momentum ? fmt::format("{}", *options.momentum) : "none (cumulative average)";
    case 4:
      return options.affine ? "true" : "false";
    case 5:
      return options.bias ? "true" : "false";
    case 6:
      return options.track_running ? "true" : "false";
    default:
      return options.device >= 0 ? "true" : "false";
  }
}

}  // namespace

std::uint64_t hash_of_settings(const BatchNormOptions& options) noexcept {
  std::uint64_t hash = 0;
  for (const std::uint64_t value : values_of(options)) hash = base::mix_hash(hash, value);
  return hash;
}

std::string differing_settings(Communicator& communicator, std::uint64_t layer,
                               const BatchNormOptions& options) {
  constexpr std::size_t each = 1 + settings;
  const auto size = static_cast<std::size_t>(communicator.size());
  std::vector<std::uint64_t> own{layer};
  for (const std::uint64_t value : values_of(options)) own.push_back(value);
  std::vector<std::uint64_t> all(size * each);
  OpOptions how;
  how.priority = Priority::urgent;
  how.deadline = options.deadline;
  how.tag = "which options";
  communicator.all_gather(buffer_of(std::span(own)), buffer_of(std::span(all)), how).wait();
  const auto differs = [&](std::size_t element) {
    for (std::size_t rank = 1; rank < size; ++rank)
      if (all[rank * each + element] != all[element]) return true;
    return false;
  };
  std::string text;
  if (differs(0)) return text;
  for (std::size_t setting = 0; setting < settings; ++setting)
    if (differs(1 + setting))
      text += fmt::format("{} {} {}", text.empty() ? " with" : ",", names[setting],
                          text_of(options, setting));
  return text;
}

}  // namespace rondo::bn
