// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include <rondo/agreement.h>

#include "catch.h"
#include "training/helpers.h"

namespace rondo::testing {
namespace {

using Sums = std::array<double, agreement_elements>;

bool agree(const std::vector<std::uint64_t>& numbers) {
  Sums sums{};
  for (const std::uint64_t number : numbers) {
    Sums each{};
    put_agreement(each, number);
    for (std::size_t i = 0; i < each.size(); ++i) sums[i] += each[i];
  }
  return agreed(sums, static_cast<int>(numbers.size()));
}

TEST_CASE("equal numbers agree, on any number of ranks") {
  for (const std::size_t size : {1, 2, 3, 4, 5, 7, 64, 1000, 8192})
    for (const std::uint64_t number :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{7}, std::uint64_t{0xfffff},
          std::uint64_t{1} << 20, ~std::uint64_t{0}})
      CHECK(agree(std::vector<std::uint64_t>(size, number)));
}

TEST_CASE("one number that differs shows, on any number of ranks") {
  std::mt19937_64 random(3);
  for (const std::size_t size : {2, 3, 5, 64, 1000, 8192}) {
    for (int i = 0; i < 50; ++i) {
      const std::uint64_t number = random();
      std::vector<std::uint64_t> numbers(size, number);
      numbers[random() % size] = number ^ (std::uint64_t{1} << (random() % 64));
      REQUIRE_FALSE(agree(numbers));
    }
    std::vector<std::uint64_t> nearest(size, ~std::uint64_t{0});
    nearest[0] -= 1;
    CHECK_FALSE(agree(nearest));
    std::vector<std::uint64_t> halves(size, 10);
    for (std::size_t i = 0; i < size / 2; ++i) halves[i] = 12;
    CHECK_FALSE(agree(halves));
  }
  // Here the mean equals the number of one rank: a plain sum would not show the difference.
  CHECK_FALSE(agree({4, 5, 6}));
}

TEST_CASE("different numbers never agree, whichever bits they differ in") {
  CHECK_FALSE(agree({1, std::uint64_t{1} << 20}));
  CHECK_FALSE(agree({0, 0x100001}));
  CHECK_FALSE(agree({0, 0x10000100001}));
  for (int i = 0; i < 64; ++i)
    for (int j = 0; j < 64; ++j) {
      const std::uint64_t number = 0x0123456789abcdef;
      const std::uint64_t other = number ^ std::uint64_t{1} << i ^ std::uint64_t{1} << j;
      REQUIRE(agree({number, other}) == (i == j));
    }
}

TEST_CASE("sums that no ranks can have given agree with nothing") {
  const double not_a_number = std::nan("");
  for (std::size_t first = 0; first < agreement_elements; first += 2)
    for (const auto& [part, square] : {std::pair{not_a_number, 1.0}, std::pair{1.0, not_a_number},
                                       std::pair{-2.0, 2.0}, std::pair{HUGE_VAL, HUGE_VAL}}) {
      Sums sums{};
      sums[first] = part;
      sums[first + 1] = square;
      CHECK_FALSE(agreed(sums, 2));
    }
}

TEST_CASE("numbers agree or not within a sum, and the few are named first") {
  CHECK_NOTHROW(run_communicators(ranks(4), "agreement", [](Communicator& c, int rank) {
    const auto sum_of = [&](std::uint64_t number) {
      std::vector<double> payload(5 + agreement_elements, 1.0);
      put_agreement(std::span(payload).last<agreement_elements>(), number);
      c.all_reduce(buffer_of(std::span(payload)), buffer_of(std::span(payload)), ReduceOp::sum)
          .wait();
      return agreed(std::span<const double>(payload).last<agreement_elements>(), c.size());
    };
    expect(sum_of(7), "equal");
    expect(!sum_of(rank == 2 ? 8 : 7), "different");
    const auto said = [&](const std::string& mine) {
      return error_of(Errc::mismatch, [&] { throw_disagreement(c, "batch norm", mine); });
    };
    const std::string one = said(rank == 2 ? "is at layer bn4, step 7" : "is at layer bn3, step 7");
    expect(one ==
               "batch norm: ranks differ: rank 2 is at layer bn4, step 7; ranks 0, 1, 3 are at "
               "layer bn3, "
               "step 7",
           one);
    const std::string longest = said(std::string(1000, static_cast<char>('a' + rank % 2)));
    expect(longest == "batch norm: ranks differ: ranks 0, 2 " + std::string(240, 'a') +
                          "; ranks 1, 3 " + std::string(240, 'b'),
           longest);
  }));
}

}  // namespace
}  // namespace rondo::testing
