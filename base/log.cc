// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <utility>

namespace rondo::base {
namespace {

constexpr std::array<std::string_view, 5> names{"off", "error", "warning", "info", "debug"};

// Decides what QuotaLog lets through: so many lines at once, then one after each pause.
constexpr int free_lines = 10;
constexpr std::chrono::minutes pause{1};

// One writev for the whole line: the kernel does not mix short writes of several processes.
void write_line(std::string_view level, std::string_view text) noexcept {
  constexpr std::string_view program = "rondo ", colon = ": ", end = "\n";
  std::array<iovec, 5> parts{};
  std::size_t used = 0;
  for (std::string_view part : {program, level, colon, text, end})
    parts[used++] = {const_cast<char*>(part.data()), part.size()};
  while (::writev(STDERR_FILENO, parts.data(), static_cast<int>(used)) < 0 && errno == EINTR) {
  }
}

LogLevel chosen_level() noexcept {
  const char* value = std::getenv("RONDO_LOG");
  if (value == nullptr || *value == '\0') return LogLevel::warning;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == value) return static_cast<LogLevel>(i);
  write_line("warning", "RONDO_LOG is none of off, error, warning, info, debug: taken as warning");
  return LogLevel::warning;
}

LogLevel level_in_force() noexcept {
  static const LogLevel level = chosen_level();
  return level;
}

}  // namespace

bool log_enabled(LogLevel level) noexcept {
  return level != LogLevel::off && level <= level_in_force();
}

void log_line(LogLevel level, std::string_view text) noexcept {
  if (!log_enabled(level)) return;
  write_line(names[static_cast<std::size_t>(level)], text);
}

std::optional<std::uint64_t> QuotaLog::admit(TimePoint now) {
  if (first_lines_ < free_lines) {
    ++first_lines_;
    next_ = now + pause;
    return 0;
  }
  if (now < next_) {
    ++left_out_;
    return std::nullopt;
  }
  next_ = now + pause;
  return std::exchange(left_out_, 0);
}

void QuotaLog::line(LogLevel level, const std::string& text) {
  if (!log_enabled(level)) return;
  const auto left_out = admit(Clock::now());
  if (!left_out) return;
  log_line(level, *left_out == 0 ? text
                                 : text + " (" + std::to_string(*left_out) +
                                       " such lines before it were left out)");
}

}  // namespace rondo::base
