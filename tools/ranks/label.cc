// SPDX-License-Identifier: Apache-2.0
#include "tools/ranks/label.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>

#include "tools/shared/output.h"

namespace rondo::tools {
namespace {

constexpr std::size_t longest_line = std::size_t{64} << 10;

}  // namespace

void LabelledStream::write_line(std::string_view line) {
  if (discards_) return;
  const std::string text = fmt::format("[{}] {}\n", rank_, line);
  if (to_ == To::output)
    print_text(text);
  else
    say_text(text);
}

void LabelledStream::write_lines() {
  std::size_t begin = 0;
  for (std::size_t end; (end = pending_.find('\n', begin)) != std::string::npos; begin = end + 1)
    write_line(std::string_view(pending_).substr(begin, end - begin));
  pending_.erase(0, begin);
  if (pending_.size() < longest_line && (open() || pending_.empty())) return;
  write_line(pending_);
  pending_.clear();
}

void LabelledStream::forward() {
  std::array<char, 16 << 10> chunk;
  while (open()) {
    const ssize_t got = ::read(from_.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) from_.reset();
    if (got > 0) pending_.append(chunk.data(), static_cast<std::size_t>(got));
    write_lines();
  }
  if (to_ == To::output && !discards_) flush_output();
}

void LabelledStream::close() {
  from_.reset();
  pending_.clear();
  discards_ = true;
}

void LabelledStream::discard() {
  pending_.clear();
  discards_ = true;
}

void LabelledStream::finish() {
  forward();
  from_.reset();
  write_lines();
  if (to_ == To::output && !discards_) flush_output();
}

}  // namespace rondo::tools
