// SPDX-License-Identifier: Apache-2.0
//
// Tests ranks that call different things: each of them gets the same mismatch, which names both
// calls.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "catch.h"
#include "support/ranks.h"

namespace rondo::testing {
namespace {

constexpr std::size_t size = 3, block = 100;

// Memory for any of the calls.
struct Memory {
  std::vector<float> in = std::vector<float>(size * block), out = std::vector<float>(size * block);
  Buffer input(std::size_t count) { return {in.data(), count, DType::f32}; }
  Buffer output(std::size_t count) { return {out.data(), count, DType::f32}; }
};

using Start = std::function<Work(Communicator&, Memory&)>;

// Rank 1 calls `odd`, the others call `common`. Each message must contain all of `parts`.
void check_mismatch(const std::string& name, const Start& common, const Start& odd,
                    const std::vector<std::string>& parts) {
  for (const Over over : {Over::mem, Over::tcp}) {
    Setup setup;
    setup.size = static_cast<int>(size);
    setup.over = over;
    std::vector<std::string> messages(size);
    CHECK_NOTHROW(run_communicators(setup, name, [&](Communicator& c, int rank) {
      Memory memory;
      try {
        (rank == 1 ? odd : common)(c, memory).wait();
      } catch (const Error& error) {
        expect(error.code() == Errc::mismatch, name + ": " + error.what());
        messages[static_cast<std::size_t>(rank)] = error.what();
      }
    }));
    for (const std::string& message : messages) {
      INFO(name_of(over) << ": " << name << ": " << message);
      const auto cause = [](const std::string& text) {
        return text.substr(std::min(text.size(), text.find("): ")));
      };
      CHECK(cause(message) == cause(messages[0]));
      for (const std::string& part : parts) CHECK(message.find(part) != std::string::npos);
    }
  }
}

Work gather_to(Communicator& c, Memory& m, int root) {
  return c.gather(m.input(block), m.output(size * block), root);
}

TEST_CASE("gathers to different roots") {
  check_mismatch(
      "roots", [](Communicator& c, Memory& m) { return gather_to(c, m, 0); },
      [](Communicator& c, Memory& m) { return gather_to(c, m, 2); },
      {"gather #1 (100 f32, root 0)", "gather #1 (100 f32, root 2)", "rank 1 "});
}

TEST_CASE("a gather against a scatter") {
  check_mismatch(
      "gather and scatter", [](Communicator& c, Memory& m) { return gather_to(c, m, 0); },
      [](Communicator& c, Memory& m) {
        return c.scatter(m.input(size * block), m.output(block), 0);
      },
      {"gather #1 (100 f32, root 0)", "scatter #1 (100 f32, root 0)"});
}

TEST_CASE("an all_to_all against an all_reduce of the same buffers") {
  check_mismatch(
      "all_to_all and all_reduce",
      [](Communicator& c, Memory& m) {
        return c.all_to_all(m.input(size * block), m.output(size * block));
      },
      [](Communicator& c, Memory& m) {
        return c.all_reduce(m.input(size * block), m.output(size * block), ReduceOp::sum);
      },
      {"all_to_all #1 (300 f32)", "all_reduce #1 (300 f32 sum)"});
}

TEST_CASE("blocks of different sizes in an all_to_all") {
  check_mismatch(
      "all_to_all",
      [](Communicator& c, Memory& m) { return c.all_to_all(m.input(300), m.output(300)); },
      [](Communicator& c, Memory& m) { return c.all_to_all(m.input(297), m.output(297)); },
      {"all_to_all #1 (300 f32)", "all_to_all #1 (297 f32)"});
}

TEST_CASE("different counts of the same sum") {
  const std::vector<std::size_t> counts{100, 50, 150}, others{150, 50, 100};
  check_mismatch(
      "all_gather_v",
      [&](Communicator& c, Memory& m) {
        return c.all_gather_v(m.input(counts[static_cast<std::size_t>(c.rank())]), m.output(300),
                              counts);
      },
      [&](Communicator& c, Memory& m) {
        return c.all_gather_v(m.input(50), m.output(300), others);
      },
      {"all_gather_v #1 (300 f32 in blocks of counts ", "rank 1 called", "where rank"});
  check_mismatch(
      "reduce_scatter_v",
      [&](Communicator& c, Memory& m) {
        return c.reduce_scatter_v(m.input(300),
                                  m.output(counts[static_cast<std::size_t>(c.rank())]), counts,
                                  ReduceOp::sum);
      },
      [&](Communicator& c, Memory& m) {
        return c.reduce_scatter_v(m.input(300), m.output(50), others, ReduceOp::sum);
      },
      {"reduce_scatter_v #1 (300 f32 sum in blocks of counts "});
}

TEST_CASE("an all_gather_v with equal counts is still no all_gather") {
  const std::vector<std::size_t> counts(size, block);
  check_mismatch(
      "all_gather_v and all_gather",
      [&](Communicator& c, Memory& m) {
        return c.all_gather_v(m.input(block), m.output(size * block), counts);
      },
      [](Communicator& c, Memory& m) {
        return c.all_gather(m.input(block), m.output(size * block));
      },
      {"all_gather_v #1 (300 f32 in blocks", "all_gather #1 (100 f32)"});
}

}  // namespace
}  // namespace rondo::testing
