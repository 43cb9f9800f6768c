// SPDX-License-Identifier: Apache-2.0
//
// What the program says. Standard output is its result: what is printed there is written, or OutputLost tells that it is not.
// Standard error is for people: when nobody reads it, the program goes on.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <system_error>
#include <utility>

namespace rondo::tools {

// Standard output could not be written. Of a reader that closed it nobody needs to hear: such a program ends as if SIGPIPE had
// killed it.
class OutputLost : public std::system_error {
 public:
  explicit OutputLost(int cause);
  bool reader_is_gone() const noexcept;
  int exit_status() const noexcept;
};

// Blocks SIGPIPE, so that a closed reader is an error of a write, and fills closed standard descriptors, so that no socket
// becomes one of them. To be called first; programs started from here have SIGPIPE as it was.
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
