// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include "examples/train/head.h"

namespace train {

// One step, and at the end of an epoch what the test said.
struct CurveRow {
  std::uint64_t step = 0, epoch = 0;  // from 1
  double rate = 0;
  Result batch;
  std::optional<Result> test;
  double samples_per_second = 0;  // with test
};

// The course of a run as CSV. A file that cannot be written is a std::runtime_error.
class Curve {
 public:
  Curve() = default;  // keeps nothing
  // Rows of steps up to `keep` stay when the file is there already; others are dropped.
  Curve(const std::string& path, std::uint64_t keep);

  void add(const CurveRow& row);
  void flush();

 private:
  std::string path_;
  std::ofstream out_;
};

}  // namespace train
