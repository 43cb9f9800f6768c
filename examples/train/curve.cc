// SPDX-License-Identifier: Apache-2.0
#include "examples/train/curve.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <stdexcept>
#include <string_view>
#include <system_error>

namespace train {
namespace {

constexpr std::string_view header =
    "step,epoch,learning_rate,loss,accuracy,test_loss,test_accuracy,samples_per_second\n";

// errno is 0 when an earlier row could not be written: then the cause is not known any more.
[[noreturn]] void fail(const std::string& path) {
  const std::string why = errno == 0 ? "" : ": " + std::generic_category().message(errno);
  throw std::runtime_error(fmt::format("'{}' cannot be written{}", path, why));
}

std::string rows_until(const std::string& path, std::uint64_t keep) {
  std::string rows, line;
  std::ifstream in(path);
  while (keep > 0 && std::getline(in, line)) {
    std::uint64_t step = 0;
    const auto parsed = std::from_chars(line.data(), line.data() + line.size(), step);
    if (parsed.ec == std::errc{} && step >= 1 && step <= keep) rows.append(line).append("\n");
  }
  return rows;
}

}  // namespace

Curve::Curve(const std::string& path, std::uint64_t keep) : path_(path) {
  const std::string kept = rows_until(path, keep);
  errno = 0;
  out_.open(path, std::ios::trunc);
  if (!out_) fail(path_);
  out_ << header << kept;
  flush();
}

void Curve::add(const CurveRow& row) {
  if (path_.empty()) return;
  std::string test = ",,";
  if (row.test)
    test = fmt::format("{:.9g},{:.6g},{:.1f}", row.test->loss.mean(), row.test->right.mean(),
                       row.samples_per_second);
  out_ << fmt::format("{},{},{:.9g},{:.9g},{:.6g},{}\n", row.step, row.epoch, row.rate,
                      row.batch.loss.mean(), row.batch.right.mean(), test);
}

void Curve::flush() {
  if (path_.empty()) return;
  errno = 0;
  out_.flush();
  if (!out_) fail(path_);
}

}  // namespace train
