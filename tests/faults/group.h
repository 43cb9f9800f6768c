// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "catch.h"
#include "processes.h"
#include "support/effort.h"

namespace rondo {

// Returns the seed of random moments: RONDO_TEST_SEED or, if it is not set, another one in each
// run. A test that fails prints it.
inline std::uint64_t seed_of_moments() {
  static const std::uint64_t seed =
      std::getenv("RONDO_TEST_SEED") != nullptr ? testing::test_seed() : std::random_device{}();
  return seed;
}

// Returns all cases of a fault in the whole set. Otherwise returns one, which the seed draws.
template <class T>
std::vector<T> drawn_of(std::initializer_list<T> cases) {
  if (testing::whole_set()) return cases;
  return {cases.begin()[testing::test_seed() % cases.size()]};
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Ending {
  bool answered = false;
  std::string code, message;  // "ok", or the error's code and text without the path of the dump
};

// Reads the dump that an error names. It must be complete, and its verdict that of the error. Some
// ranks print a number as the code.
inline void check_dump(const std::string& path, const Ending& ending) {
  std::ifstream file(path);
  std::string line, last, verdict;
  std::size_t lines = 0;
  for (; std::getline(file, line); ++lines) {
    if (line.rfind("verdict ", 0) == 0) verdict = line;
    last = line;
  }
  INFO("dump " << path << ": " << verdict);
  REQUIRE(lines > 2);
  CHECK(last == "end lines=" + std::to_string(lines - 2));
  CHECK(verdict.rfind("verdict code=", 0) == 0);
  if (std::isalpha(ending.code.front()))
    CHECK(verdict.rfind("verdict code=" + ending.code + " ", 0) == 0);
}

// The ranks of one job on this host.
class Group {
 public:
  static constexpr std::chrono::seconds patience{30};

  explicit Group(int size, std::string deadline_seconds = "20")
      : size_(size), deadline_(std::move(deadline_seconds)) {
    std::filesystem::create_directory(dumps());
  }

  // count: floats of each all-reduce.
  void start(int rank, const std::string& mode, int operations, int at, std::size_t count) {
    std::map<std::string, std::string> environment{{"RONDO_RANK", std::to_string(rank)},
                                                   {"RONDO_SIZE", std::to_string(size_)},
                                                   {"RONDO_RENDEZVOUS", url()},
                                                   {"RONDO_SECRET", "the secret of this test"},
                                                   {"RONDO_INTERFACE", "lo"},
                                                   {"RONDO_TRANSPORT", transport},
                                                   {"RONDO_DEADLINE", deadline_},
                                                   {"RONDO_DUMP", dumps()},
                                                   {"RONDO_CONNECT_DEADLINE", "20"}};
    for (const auto& [name, value] : overrides[rank]) environment[name] = value;
    // ./dev gpu --binaries has moved the program away from the build folder.
    const char* const moved = std::getenv("RONDO_TEST_RANK_PROGRAM");
    const std::string program = mode == "drip"     ? RONDO_FAULT_DRIP
                                : moved != nullptr ? moved
                                                   : RONDO_FAULT_RANK;
    processes_.emplace_back(std::vector<std::string>{program, mode, std::to_string(operations),
                                                     std::to_string(at), std::to_string(count)},
                            environment);
  }
  void start_all(const std::vector<std::string>& modes, int operations, int at, std::size_t count) {
    for (int rank = 0; rank < size_; ++rank)
      start(rank, modes[static_cast<std::size_t>(rank)], operations, at, count);
    for (int rank = 0; rank < size_; ++rank) addresses.push_back(ready(rank));
  }
  // Waits until the rank has joined. Returns its data address.
  std::string ready(int rank) {
    const std::string line = (*this)[rank].line(base::Clock::now() + patience);
    INFO("rank " << rank << ": " << line);
    REQUIRE(line.rfind("ready ", 0) == 0);
    return line.substr(6);
  }
  std::string url() const { return "file://" + directory_.path() + "/rendezvous"; }
  std::string dumps() const { return directory_.path() + "/dumps"; }

  Process& operator[](int rank) { return processes_[static_cast<std::size_t>(rank)]; }

  Ending ending(int rank, base::TimePoint until = base::Clock::now() + patience) {
    const std::string line = (*this)[rank].line(until);
    if (line.empty()) return {};
    if (line.rfind("error ", 0) != 0) return {true, line, {}};
    const auto space = line.find(' ', 6), recorded = line.find(recorded_in);
    const Ending ending{true, line.substr(6, space - 6),
                        line.substr(space + 1, recorded - space - 1)};
    INFO("rank " << rank << ": " << line);
    // Every error of an operation names its dump; one of connect() has none.
    CHECK((recorded != std::string::npos) == contains(line, " #"));
    if (recorded != std::string::npos)
      check_dump(line.substr(recorded + recorded_in.size()), ending);
    return ending;
  }

  // Returns what `rondo trace` says of the dumps.
  std::string trace() const {
    const std::string output = directory_.path() + "/trace";
    Process tool({"/bin/sh", "-c", RONDO_TOOL " trace '" + dumps() + "' > " + output + " 2>&1"},
                 {});
    CHECK(tool.wait(base::Clock::now() + patience) == 0);
    return (std::ostringstream() << std::ifstream(output).rdbuf()).str();
  }

  std::string transport = "tcp";                                // RONDO_TRANSPORT of all ranks
  std::map<int, std::map<std::string, std::string>> overrides;  // environment variables, by rank
  std::vector<std::string> addresses;                           // by rank

 private:
  static constexpr std::string_view recorded_in = "; recorded in ";

  int size_;
  std::string deadline_;
  ScratchDirectory directory_;
  std::vector<Process> processes_;
};

// The part of a message after the operation. It must be the same on every rank.
inline std::string cause_of(const std::string& message) {
  const auto at = message.find("): ");
  return at == std::string::npos ? message : message.substr(at + 3);
}

}  // namespace rondo
