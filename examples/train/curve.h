// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include "examples/train/head.h"

namespace train {

// One step, and at the end of an epoch the result of the test.
struct CurveRow {
  std::uint64_t step = 0, epoch = 0;  // from 1
  double rate = 0;
  Result batch;
  std::optional<Result> test;
  double samples_per_second = 0;  // with test
};

// Writes the steps of a run as CSV. Throws std::runtime_error when the file cannot be written.
class Curve {
 public:
  Curve() = default;  // writes nothing
  // Rows of an existing file stay up to step `keep`; later ones are dropped.
  Curve(const std::string& path, std::uint64_t keep);

  void add(const CurveRow& row);
  void flush();

 private:
  std::string path_;
  std::ofstream out_;
};

}  // namespace train
