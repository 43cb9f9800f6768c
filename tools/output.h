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

// Standard output could not be written. When its reader has closed it, the program says nothing and
// ends as if SIGPIPE had killed it.
class OutputLost : public std::system_error {
 public:
  explicit OutputLost(int cause);
  bool reader_is_gone() const noexcept;
  int exit_status() const noexcept;
};

// Blocks SIGPIPE, so that a closed reader is an error of a write. Fills closed standard
// descriptors, so that no socket becomes one of them. Call it first; programs started from here
// have SIGPIPE as it was.
void prepare_output();

// Both throw OutputLost. What print() has accepted may still be in memory until flush_output().
void print_text(std::string_view text);
void flush_output();

template <class... Arguments>
void print(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  print_text(fmt::format(format, std::forward<Arguments>(arguments)...));
}

// To standard error, whole lines or pieces of one.
void say_text(std::string_view text) noexcept;

template <class... Arguments>
void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  say_text(fmt::format(format, std::forward<Arguments>(arguments)...));
}

}  // namespace rondo::tools
