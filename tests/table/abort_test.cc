// SPDX-License-Identifier: Apache-2.0
//
// Communicator::abort with a code and a text: every rank gets the same cause, fit for one line of a
// terminal.
#include <string>
#include <system_error>
#include <vector>

#include "catch.h"
#include "support/ranks.h"

namespace rondo::testing {
namespace {

// Returns the text that wait() throws, from "rank N called abort" on; all of it if that is not
// there.
std::string cause_of(Communicator& c) {
  try {
    c.barrier().wait();
  } catch (const Error& error) {
    expect(error.code() == Errc::aborted, error.what());
    const std::string text = error.what();
    const auto at = text.find(": rank ");
    return at == std::string::npos ? text : text.substr(at + 2);
  }
  return "no error";
}

// Rank 1 aborts, before it has called what the others wait for. Returns the cause, which is the
// same everywhere.
std::string cause_of_all(Over over, std::error_code why, const std::string& text) {
  Setup setup;
  setup.size = 3;
  setup.over = over;
  std::vector<std::string> causes(3);
  CHECK_NOTHROW(run_communicators(setup, "abort", [&](Communicator& c, int rank) {
    if (rank == 1) c.abort(why, text);
    causes[static_cast<std::size_t>(rank)] = cause_of(c);
    c.abort(Errc::corrupt, "too late");  // the first cause stays
    expect(cause_of(c) == causes[static_cast<std::size_t>(rank)], "another cause");
  }));
  CHECK(causes[0] == causes[1]);
  CHECK(causes[2] == causes[1]);
  return causes[1];
}

}  // namespace

TEST_CASE("abort: the words of the code and the text reach every rank") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  CHECK(cause_of_all(over, Errc::corrupt, "batch 17 has no labels") ==
        "rank 1 called abort: data from the wire is damaged: batch 17 has no labels");
  CHECK(cause_of_all(over, Errc::aborted, "batch 17") == "rank 1 called abort: batch 17");
  CHECK(cause_of_all(over, {}, "batch 17") == "rank 1 called abort: batch 17");
  CHECK(cause_of_all(over, Errc::deadline_exceeded, "") ==
        "rank 1 called abort: the deadline passed");
  CHECK(cause_of_all(over, {}, " \n") == "rank 1 called abort: the communicator was aborted");
  const std::error_code other = std::make_error_code(std::errc::no_space_on_device);
  CHECK(cause_of_all(over, other, "epoch 3") ==
        "rank 1 called abort: " + other.message() + ": epoch 3");
}

TEST_CASE("abort: what no terminal should get becomes blanks") {
  using namespace std::string_literals;
  CHECK(cause_of_all(Over::tcp, Errc::aborted, "a\nb\x1b[2J\x9b\xff\0c\xc2\x9b \xc3\xa4"s) ==
        "rank 1 called abort: a b [2J   c   \xc3\xa4");
}

TEST_CASE("abort: a long text is cut between characters") {
  std::string text = "x";
  for (int i = 0; i < 5000; ++i) text += "\xc3\xa4";
  CHECK(cause_of_all(Over::tcp, Errc::aborted, text) ==
        "rank 1 called abort: " + text.substr(0, 999));
}

TEST_CASE("abort: ranks that abort at once agree on one cause") {
  Setup setup;
  setup.size = 4;
  setup.over = GENERATE(Over::mem, Over::tcp, Over::shm);
  std::vector<std::string> causes(4);
  CHECK_NOTHROW(run_communicators(setup, "aborts", [&](Communicator& c, int rank) {
    if (rank % 2 == 1) c.abort(Errc::aborted, "because of " + std::to_string(rank));
    causes[static_cast<std::size_t>(rank)] = cause_of(c);
  }));
  for (const std::string& cause : causes) CHECK(cause == causes[0]);
  CHECK((causes[0] == "rank 1 called abort: because of 1" ||
         causes[0] == "rank 3 called abort: because of 3"));
}

TEST_CASE("abort: a rank alone") {
  Setup setup;
  setup.size = 1;
  CHECK_NOTHROW(run_communicators(setup, "alone", [](Communicator& c, int) {
    c.abort(Errc::aborted, "line\nbreak");
    expect(cause_of(c) == "rank 0 called abort: line break", cause_of(c));
  }));
}

}  // namespace rondo::testing
