// SPDX-License-Identifier: Apache-2.0
//
// The flags of rondo bench, each described once: the parser and --help read this table, and
// tests/tools/flags_test.py makes the lists of the man page and of docs/bench.md from --help.
#pragma once

#include <map>
#include <span>
#include <string>

#include "tools/bench/options.h"
#include "tools/shared/commands.h"

namespace rondo::tools {

// The runs that a flag suits: every one, those of rows of any operation but pairs, pairs alone, or
// the intervals of --seconds.
enum class Suits : unsigned char { all, rows, pairs, soak };

struct Flag {
  // Puts what the user typed into the options, whose operations are known. name: for messages.
  using Read = void (*)(const std::string& name, const std::string& text, BenchOptions& options);

  const char* names;  // "-b,--minbytes"
  const char* value;  // what follows it, as in SIZE; null: it is a switch
  Suits suits;
  const char* help;
  Read read = nullptr;             // null: interpret() reads it together with others
  const char* not_pairs = "";      // of rows and soak: why pairs refuses it
  const char* default_value = "";  // given in words, it counts as not given

  // "--minbytes", as messages and BenchFlags call it.
  std::string name() const;
};
std::span<const Flag> bench_flags();

// The flags as the user typed them. They are text, so that Rondo reads them and writes the
// messages.
class BenchFlags {
 public:
  // This object outlives the command.
  void add_to(CLI::App& command);

  // Empty where it was not given.
  const std::string& operator[](const std::string& name) const { return texts_.at(name); }
  bool has(const Flag& flag) const;
  bool on(const std::string& name) const { return switches_.at(name); }

 private:
  std::map<std::string, std::string> texts_;
  std::map<std::string, bool> switches_;
};

// Reads all flags; settle() checks what depends on the number of ranks. Throws UsageError that says
// what was given and what is possible.
BenchOptions interpret(const BenchFlags& flags);

}  // namespace rondo::tools
