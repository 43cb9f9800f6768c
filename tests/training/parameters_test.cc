// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <rondo/parameters.h>

#include "catch.h"
#include "training/helpers.h"
#include "training/parameter_list.h"

namespace rondo::testing {
using Catch::Matchers::Contains, Catch::Matchers::EndsWith;

namespace {

std::vector<Parameter> model() {
  return {{"conv.weight", {16, 3, 3, 3}},
          {"bn.weight", {16}},
          {"fc.weight", {10, 64}},
          {"fc.bias", {10}}};
}

// Returns what check_parameters says, on every rank, if some ranks have changed their model.
std::string said(int size,
                 const std::map<int, std::function<void(std::vector<Parameter>&)>>& changes,
                 Errc code = Errc::mismatch) {
  std::vector<std::string> messages(static_cast<std::size_t>(size));
  CHECK_NOTHROW(run_communicators(ranks(size), "check", [&](Communicator& c, int rank) {
    std::vector<Parameter> parameters = model();
    check_parameters(c, parameters);
    if (const auto change = changes.find(rank); change != changes.end()) change->second(parameters);
    messages[static_cast<std::size_t>(rank)] =
        error_of(code, [&] { check_parameters(c, parameters); });
    c.barrier().wait();  // the communicator is unharmed
  }));
  for (const std::string& each : messages) CHECK(each == messages.front());
  return messages.front();
}

TEST_CASE("element_count is the product of the shape") {
  CHECK(element_count({"scalar", {}}) == 1);
  CHECK(element_count({"matrix", {3, 5}}) == 15);
  CHECK(element_count({"empty", {3, 0, std::numeric_limits<std::size_t>::max()}}) == 0);
  CHECK(error_of(Errc::invalid_argument, [] {
          (void)element_count({"huge", {std::size_t{1} << 32, std::size_t{1} << 32}});
        }) == "parameter 'huge' has more elements than 64 bits can count");
  CHECK(error_of(Errc::invalid_argument, [] {
          (void)element_count({"huge", {std::size_t{1} << 62}});
        }) != "no error");
}

TEST_CASE("a parameter of another shape or type is named") {
  CHECK(said(4, {{2,
                  [](auto& list) {
                    list[2].shape = {10, 32};
                  }}}) ==
        "parameter 'fc.weight' is f32 [10, 64] on ranks 0, 1, 3, but f32 [10, 32] on rank 2");
  CHECK(said(3, {{0, [](auto& list) { list[3].type = DType::f16; }}}) ==
        "parameter 'fc.bias' is f32 [10] on ranks 1, 2, but f16 [10] on rank 0");
  CHECK(said(2, {{1, [](auto& list) { list[0].shape.clear(); }}}) ==
        "parameter 'conv.weight' is f32 [16, 3, 3, 3] on rank 0, but f32 [] on rank 1");
}

TEST_CASE("a parameter that only some have is named") {
  CHECK(said(3, {{1, [](auto& list) { list.erase(list.begin() + 1); }}}) ==
        "parameter 'bn.weight' (f32 [16]) of ranks 0, 2 is missing on rank 1");
  CHECK(said(3, {{1, [](auto& list) { list.pop_back(); }}}) ==
        "parameter 'fc.bias' (f32 [10]) of ranks 0, 2 is missing on rank 1");
  CHECK(said(3, {{1, [](auto& list) { list.clear(); }}}) ==
        "parameter 'conv.weight' (f32 [16, 3, 3, 3]) of ranks 0, 2 is missing on rank 1");
  CHECK(said(3, {{2, [](auto& list) {
                    list.push_back({"extra", {7}});
                  }}}) == "parameter 'extra' (f32 [7]) of rank 2 is missing on ranks 0, 1");
  CHECK(said(3, {{2, [](auto& list) {
                    list.insert(list.begin(), {"extra", {7}});
                  }}}) == "parameter 'extra' (f32 [7]) of rank 2 is missing on ranks 0, 1");
}

TEST_CASE("another order is named") {
  CHECK(said(3, {{2, [](auto& list) { std::swap(list[1], list[2]); }}}) ==
        "parameter 1 is 'bn.weight' on ranks 0, 1, but 'fc.weight' on rank 2; all ranks must list "
        "parameters in the same order");
}

TEST_CASE("of several differences the first is named, with all ranks that have it") {
  CHECK(said(5, {{0, [](auto& list) { list[3].shape = {11}; }},
                 {2, [](auto& list) { list[1].shape = {8}; }},
                 {4, [](auto& list) { list[1].shape = {4}; }}}) ==
        "parameter 'bn.weight' is f32 [16] on ranks 0, 1, 3, but f32 [4] on rank 4; "
        "parameter 'bn.weight' is f32 [16] on ranks 0, 1, 3, but f32 [8] on rank 2");
}

TEST_CASE("many ranks are named in short") {
  CHECK(said(12, {{11, [](auto& list) { list[3].shape = {11}; }}}) ==
        "parameter 'fc.bias' is f32 [10] on ranks 0-10, but f32 [11] on rank 11");
}

TEST_CASE("of many lists some are compared") {
  std::map<int, std::function<void(std::vector<Parameter>&)>> changes;
  for (int rank = 1; rank < 18; ++rank)
    changes[rank] = [rank](auto& list) { list[3].shape = {std::size_t(100 + rank)}; };
  const std::string text = said(18, changes);
  CHECK_THAT(text, Contains("but f32 [115] on rank 15"));
  CHECK_THAT(text, !Contains("rank 16") && EndsWith("; 2 more lists differ"));
}

TEST_CASE("a list that is wrong in itself is refused on every rank") {
  const auto doubled = [](auto& list) { list[1].name = "fc.bias"; };
  CHECK(said(3, {{1, doubled}}, Errc::invalid_argument) ==
        "on rank 1: two parameters have the name 'fc.bias'; names must be unique");
  CHECK(said(2, {{0, doubled}, {1, doubled}}, Errc::invalid_argument) ==
        "on ranks 0, 1: two parameters have the name 'fc.bias'; names must be unique");
  CHECK(said(2, {{0, [](auto& list) { list[0].type = static_cast<DType>(99); }}},
             Errc::invalid_argument) ==
        "on rank 0: parameter 'conv.weight' has the type 99, which does not exist");
  CHECK(said(1, {{0, doubled}}, Errc::invalid_argument) ==
        "on rank 0: two parameters have the name 'fc.bias'; names must be unique");
}

TEST_CASE("a list survives its encoding, and no shorter one does") {
  std::vector<Parameter> parameters = model();
  parameters.push_back({"", {}, DType::u8});
  const std::vector<std::byte> bytes = training::encode_list(parameters);
  const auto list = training::decode_list(bytes);
  REQUIRE(list);
  CHECK(training::first_difference(parameters, *list) == training::Difference{});
  std::size_t whole = 0;
  for (std::size_t length = 0; length <= bytes.size(); ++length)
    if (training::decode_list(std::span(bytes).first(length))) ++whole;
  CHECK(whole == parameters.size() + 1);  // where a parameter ends
}

}  // namespace
}  // namespace rondo::testing
