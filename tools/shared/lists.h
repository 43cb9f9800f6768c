// SPDX-License-Identifier: Apache-2.0
//
// Functions on lists of values that several tools share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rondo::tools {

template <class List, class Value>
bool contains(const List& list, const Value& value) {
  return std::ranges::find(list, value) != std::ranges::end(list);
}

// Returns whether the value is new.
template <class Value>
bool add_once(std::vector<Value>& list, const Value& value) {
  const bool is_new = !contains(list, value);
  if (is_new) list.push_back(value);
  return is_new;
}

// The median, of an even number of values the lower one in the middle; 0 without values. Changes
// their order.
inline double median(std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// One value for each iteration, in bounded memory: of more than `most` it keeps every second,
// fourth, ... Ranks that add as many values keep those of the same iterations.
template <class Value>
class Samples {
 public:
  explicit Samples(std::size_t most) : most_(most) {}
  void add(const Value& value) {
    if (added_++ % every_ != 0) return;
    if (values_.size() == most_) {
      for (std::size_t i = 0; 2 * i < values_.size(); ++i) values_[i] = values_[2 * i];
      values_.resize((values_.size() + 1) / 2);
      every_ *= 2;
      if ((added_ - 1) % every_ != 0) return;
    }
    values_.push_back(value);
  }
  std::uint64_t added() const noexcept { return added_; }
  std::vector<Value>& values() noexcept { return values_; }
  const std::vector<Value>& values() const noexcept { return values_; }

 private:
  std::size_t most_;
  std::uint64_t added_ = 0, every_ = 1;
  std::vector<Value> values_;
};

}  // namespace rondo::tools
