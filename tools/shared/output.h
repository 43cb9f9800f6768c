// SPDX-License-Identifier: Apache-2.0
//
// The program's output. Standard output is its result: it is written, or OutputLost is thrown.
// Standard error is for people: the program goes on when nobody reads it.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <system_error>
#include <utility>

namespace rondo::tools {

// Standard output could not be written. When its reader has closed it, the program prints nothing
// and ends with 141, as if SIGPIPE had killed it.
class OutputLost : public std::system_error {
 public:
  explicit OutputLost(int cause);
  bool reader_is_gone() const noexcept;
  int exit_status() const noexcept;
};

// Blocks SIGPIPE in this thread, so that a write to a closed pipe returns an error. Opens closed
// standard descriptors, so that no socket gets one of their numbers. Call it first, before any
// thread starts. Programs that start_child() starts have no signal blocked.
void prepare_output();

// Both throw OutputLost. The text of print() may still be in memory until flush_output().
void print_text(std::string_view text);
void flush_output();

template <class... Arguments>
void print(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  print_text(fmt::format(format, std::forward<Arguments>(arguments)...));
}

// A line of a table, and a line of its titles, which begins with # in place of its first blank.
template <class... Cells>
void print_row(fmt::format_string<Cells...> columns, Cells&&... cells) {
  print("{}\n", fmt::format(columns, std::forward<Cells>(cells)...));
}
template <class... Cells>
void print_title(fmt::format_string<Cells...> columns, Cells&&... cells) {
  print("#{}\n", fmt::format(columns, std::forward<Cells>(cells)...).substr(1));
}

// To standard error, whole lines or pieces of one.
void say_text(std::string_view text) noexcept;

template <class... Arguments>
void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  say_text(fmt::format(format, std::forward<Arguments>(arguments)...));
}

}  // namespace rondo::tools
