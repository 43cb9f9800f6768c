// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <rondo/parameters.h>

#include "catch.h"
#include "grad/parameter_list.h"
#include "training/helpers.h"

namespace rondo::testing {
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

// Tensors of all sizes and types, whose bytes show rank and place.
struct Values {
  explicit Values(int rank) {
    const DType types[] = {DType::f32, DType::f64, DType::i64, DType::bf16, DType::u8};
    for (std::size_t i = 0; i < 300; ++i) {
      const std::size_t count = i % 60 == 7 ? 70'000 + i : i % 11 == 0 ? 0 : i * 97 % 5003;
      const DType type = types[i % 5];
      bytes.emplace_back(count * size_of(type));
      for (std::size_t at = 0; at < bytes.back().size(); ++at)
        bytes.back()[at] =
            static_cast<std::uint8_t>(at * 7 + i * 13 + static_cast<std::size_t>(rank) * 101);
      parameters.push_back(
          {"parameter " + std::to_string(i), {count}, type, -1, bytes.back().data()});
    }
  }
  std::vector<std::vector<std::uint8_t>> bytes;
  std::vector<Parameter> parameters;
};

TEST_CASE("broadcast_parameters gives every rank the values of the root") {
  const int size = GENERATE(1, 2, 3, 5);
  CHECK_NOTHROW(run_communicators(ranks(size), "broadcast", [&](Communicator& c, int rank) {
    Values values(rank);
    const int root = size - 1;
    const std::uint64_t before = c.statistics().operations;
    broadcast_parameters(c, values.parameters, root);
    expect(values.bytes == Values(root).bytes, "values");
    const std::uint64_t operations = c.statistics().operations - before;
    // The 300 tensors are 5 large ones and a pack or two of small ones.
    expect(operations <= 8, std::to_string(operations) + " operations");
  }));
}

TEST_CASE("broadcast_parameters: what cannot be broadcast is refused on every rank") {
  CHECK_NOTHROW(run_communicators(ranks(3), "refused", [&](Communicator& c, int rank) {
    Values values(rank);
    const auto refused = [&](Errc code, int root, const std::string& wanted) {
      const std::string message =
          error_of(code, [&] { broadcast_parameters(c, values.parameters, root); });
      expect(message == wanted, message);
    };
    refused(Errc::invalid_argument, 3,
            "on ranks 0-2: broadcast_parameters: the root is 3, but the ranks are 0 to 2");
    void* const value = values.parameters[5].value;
    if (rank == 1) values.parameters[5].value = nullptr;
    refused(
        Errc::invalid_argument, 0,
        "on rank 1: parameter 'parameter 5' has no values to broadcast: Parameter::value is null");
    values.parameters[5].value = value;
    if (rank == 2) values.parameters[1].shape = {1};
    refused(Errc::mismatch, 0,
            "parameter 'parameter 1' is f64 [97] on ranks 0, 1, but f64 [1] on rank 2");
  }));
}

TEST_CASE("a list survives its encoding, and no shorter one does") {
  std::vector<Parameter> parameters = model();
  parameters.push_back({"", {}, DType::u8});
  const std::vector<grad::ListedParameter> list = grad::list_of(parameters);
  const std::vector<std::uint8_t> bytes = grad::encode_list(list);
  CHECK(grad::decode_list(bytes) == list);
  std::size_t whole = 0;
  for (std::size_t length = 0; length <= bytes.size(); ++length)
    if (grad::decode_list(std::span(bytes).first(length))) ++whole;
  CHECK(whole == list.size() + 1);  // where a parameter ends
}

}  // namespace
}  // namespace rondo::testing
