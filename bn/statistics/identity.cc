// SPDX-License-Identifier: Apache-2.0
#include "bn/statistics/identity.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <vector>

#include "base/mix.h"

namespace rondo::statistics {

namespace {

constexpr const char* names[] = {"type",   "layout", "epsilon",       "momentum",
                                 "affine", "bias",   "track_running", "on a GPU"};
constexpr std::size_t settings = std::size(names);
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
    default:
      return values_of(options)[setting] != 0 ? "true" : "false";
  }
}

std::uint64_t hash_of(const BatchNormOptions& options) noexcept {
  std::uint64_t hash = 0;
  for (const std::uint64_t value : values_of(options)) hash = base::mix_hash(hash, value);
  return hash;
}

std::string title_of(const std::string& name, std::size_t number) {
  if (name.empty()) return fmt::format("unnamed layer {}", number);
  if (number == 1) return fmt::format("layer {}", name);
  const char* const suffix = number == 2 ? "nd" : number == 3 ? "rd" : "th";
  return fmt::format("layer {} ({}{} of this name)", name, number, suffix);
}

}  // namespace

LayerNames::Use::Use(LayerNames& names, std::string_view name) : names_(&names) {
  std::pair<std::string, std::size_t> key{name, 0};
  auto& used = names.used_;
  for (auto at = used.lower_bound(key); at != used.end() && *at == key; ++at) ++key.second;
  used_ = used.insert(std::move(key)).first;
}

Identity::Identity(const BatchNormOptions& of, std::size_t number, std::size_t channels)
    : title(title_of(of.name, number + 1)),
      options(of),
      name_hash(base::mix_hash(base::mix_hash(base::hash_text(of.name), number), channels)),
      hash(base::mix_hash(name_hash, hash_of(of))) {}

Identity::Identity(const Identity& before, const BatchNormOptions& now)
    : title(before.title),
      options(now),
      name_hash(before.name_hash),
      hash(base::mix_hash(name_hash, hash_of(now))) {}

std::string differing_options(Communicator& communicator, const Identity& layer) {
  constexpr std::size_t each = 1 + settings;
  const auto size = static_cast<std::size_t>(communicator.size());
  std::vector<std::uint64_t> own{layer.name_hash};
  for (const std::uint64_t value : values_of(layer.options)) own.push_back(value);
  std::vector<std::uint64_t> all(size * each);
  OpOptions how;
  how.priority = Priority::urgent;
  how.deadline = layer.options.deadline;
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
                          text_of(layer.options, setting));
  return text;
}

}  // namespace rondo::statistics
