// SPDX-License-Identifier: Apache-2.0
//
// Adds up what communicators of one process have counted, and writes it as text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/communicator.h>

#include "collectives/operation/tag_counts.h"

namespace rondo::metrics {

// Counters of one communicator since it was made. Ranks are those of the communicator that
// connect() made, also in a split.
struct Sample {
  int rank = 0;
  std::vector<int> ranks;  // by rank of this communicator; empty: the same
  std::string transport;   // "shm", "shm+tcp"
  Statistics statistics;
  std::optional<operation::TagCounts> tags;
};

enum class Series : std::uint8_t {
  operations,
  waited,
  sent,
  received,
  failures,
  late_calls,
  late_time,
  communicators
};
inline constexpr std::size_t series_count = 8;

// Bounds the label values: those that come first are named, all others are "other". Thread-bound.
class Names {
 public:
  explicit Names(std::size_t most) : most_(most) {}
  std::string_view of(const std::string& name);

 private:
  const std::size_t most_;
  std::set<std::string, std::less<>> named_;
};

// Escapes text for the value of a label.
std::string escaped(std::string_view text);

// Thread-bound. Counters of communicators with the same labels are added up.
class Totals {
 public:
  // All totals of a file share these: names stay while the file does.
  struct Labels {
    Names tags{operation::TagCounts::most_tags};
    Names late_ranks{64};
  };

  // is_open: the communicator still exists.
  void add(const Sample& sample, Labels& labels, bool is_open);
  // labels: put in front of those of every sample, "run=\"train\"".
  std::string text(std::string_view labels = {}) const;

 private:
  std::uint64_t& value(Series series, std::string labels) {
    return values_[static_cast<std::size_t>(series)][std::move(labels)];
  }

  // By series and labels ("rank=\"0\",cause=\"gpu\""); times in nanoseconds.
  std::array<std::map<std::string, std::uint64_t>, series_count> values_;
};

}  // namespace rondo::metrics
