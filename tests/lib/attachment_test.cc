// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "catch.h"
#include "lib/inner.h"
#include "support/ranks.h"

namespace rondo::testing {
namespace {

struct Counted final : lib::Attachment {
  explicit Counted(std::atomic<int>& alive) : alive(&alive) { ++alive; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() override { --*alive; }
  std::atomic<int>* alive;
};

Communicator alone() {
  Options options;
  options.rank = 0;
  options.size = 1;
  return Communicator::connect(options);
}

TEST_CASE("an attachment lives as long as its communicator, also where that moves") {
  static constexpr char first = 0, second = 0;
  std::atomic<int> alive{0};
  {
    Communicator communicator = alone();
    CHECK(lib::attachment(communicator, &first) == nullptr);
    lib::Attachment& kept = lib::attach(communicator, &first, std::make_unique<Counted>(alive));
    CHECK(&lib::attach(communicator, &first, std::make_unique<Counted>(alive)) == &kept);
    CHECK(alive == 1);
    CHECK(lib::attachment(communicator, &second) == nullptr);
    Communicator other(std::move(communicator));
    CHECK(lib::attachment(other, &first) == &kept);
    auto part = other.split(0, 0);
    REQUIRE(part.has_value());
    CHECK(lib::attachment(*part, &first) == nullptr);
    CHECK(alive == 1);
  }
  CHECK(alive == 0);
}

TEST_CASE("threads that attach under one key get one object") {
  static constexpr char key = 0;
  std::atomic<int> alive{0};
  Communicator communicator = alone();
  std::array<lib::Attachment*, 4> kept{};
  {
    std::vector<std::jthread> threads;
    for (lib::Attachment*& each : kept)
      threads.emplace_back([&communicator, &alive, &each] {
        each = &lib::attach(communicator, &key, std::make_unique<Counted>(alive));
      });
  }
  for (const lib::Attachment* const each : kept) CHECK(each == lib::attachment(communicator, &key));
  CHECK(alive == 1);
}

// Owns the memory of an operation that is under way when the communicator is destroyed.
struct OperationMemory final : lib::Attachment {
  std::vector<float> values = std::vector<float>(1000, 1.0F);
};

TEST_CASE("an attachment may own the memory of an operation that never ends") {
  static constexpr char key = 0;
  Setup setup;
  CHECK_NOTHROW(run_communicators(setup, "attachments", [](Communicator& c, int rank) {
    if (rank != 0) return;
    auto& kept =
        static_cast<OperationMemory&>(lib::attach(c, &key, std::make_unique<OperationMemory>()));
    const Buffer buffer = buffer_of(std::span(kept.values));
    static_cast<void>(c.all_reduce(buffer, buffer, ReduceOp::sum));
  }));
}

TEST_CASE("an attachment without a key, or a key without an attachment, is refused") {
  static constexpr char key = 0;
  std::atomic<int> alive{0};
  Communicator communicator = alone();
  CHECK_THROWS_AS(lib::attach(communicator, nullptr, std::make_unique<Counted>(alive)), Error);
  CHECK_THROWS_AS(lib::attach(communicator, &key, nullptr), Error);
  CHECK(lib::attachment(communicator, &key) == nullptr);
}

TEST_CASE("local ranks are those of the same host, ascending") {
  CHECK(std::vector<int>{0} == [] {
    const Communicator communicator = alone();
    const auto local = communicator.local_ranks();
    return std::vector<int>(local.begin(), local.end());
  }());
  Setup setup;
  setup.size = 5;
  const auto check = [](const Communicator& c, const std::vector<int>& wanted) {
    const auto local = c.local_ranks();
    expect(std::vector<int>(local.begin(), local.end()) == wanted, "other ranks are local");
  };
  CHECK_NOTHROW(run_communicators(setup, "one host", [&](Communicator& c, int) {
    check(c, {0, 1, 2, 3, 4});
  }));
  setup.hosts = {0, 1, 0, 1, 0};
  CHECK_NOTHROW(run_communicators(setup, "two hosts", [&](Communicator& c, int rank) {
    check(c, rank % 2 == 0 ? std::vector<int>{0, 2, 4} : std::vector<int>{1, 3});
    // 0, 1 and 2 in reverse order.
    if (const auto part = c.split(rank < 3 ? 0 : -1, -rank))
      check(*part, rank % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1});
  }));
}

}  // namespace
}  // namespace rondo::testing
