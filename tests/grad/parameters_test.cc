// SPDX-License-Identifier: Apache-2.0
//
// broadcast_parameters: values of all sizes and types, in host memory or on a GPU beside others in
// host memory. Small ones travel packed.
#include <barrier>

#include "catch.h"
#include "grad/trainer.h"

namespace rondo::testing {
namespace {

// Returns bytes that depend on rank, parameter and position.
Bytes values_of(int rank, std::size_t parameter, std::size_t bytes) {
  Bytes values(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    values[i] =
        static_cast<std::byte>(i * 7 + parameter * 13 + static_cast<std::size_t>(rank) * 101);
  return values;
}

// Every third parameter is in host memory.
class Values {
 public:
  Values(Communicator& c, Device device) {
    const DType types[] = {DType::f32, DType::u8, DType::i64, DType::bf16, DType::f64};
    if (device == Device::gpu) on_.emplace(device_of(device, c.rank()));
    const std::size_t number = on_ ? 40 : 300, large = on_ ? 13 : 60;
    for (std::size_t i = 0; i < number; ++i) {
      const std::size_t count = i % large == 7 ? 70'000 + i : i % 11 == 0 ? 0 : i * 97 % 5003;
      host_.push_back(values_of(c.rank(), i, count * size_of(types[i % 5])));
      parameters.push_back(
          {"p" + std::to_string(i), {count}, types[i % 5], -1, host_.back().data()});
      if (!on_ || i % 3 == 2) continue;
      const device::DeviceMemory& memory = *device_.emplace_back(
          std::make_unique<device::DeviceMemory>(on_->gpu(), host_.back().size() + 1));
      on_->copier.write(memory.address(), host_.back());
      parameters.back().device = on_->gpu().ordinal();
      parameters.back().value = reinterpret_cast<void*>(memory.address());
    }
  }
  bool are_of(int rank) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].device >= 0)
        on_->copier.read(host_[i], reinterpret_cast<device::Address>(parameters[i].value));
      if (host_[i] != values_of(rank, i, host_[i].size())) return false;
    }
    return true;
  }

  std::vector<Parameter> parameters;

 private:
  std::optional<OnGpu> on_;
  std::vector<Bytes> host_;
  std::vector<std::unique_ptr<device::DeviceMemory>> device_;
};

TEST_CASE("broadcast_parameters gives every rank the values of the root", "[devices]") {
  const Device device = GENERATE(from_range(devices()));
  const int size = GENERATE(1, 2, 3, 5);
  if (device == Device::gpu && size > 3) return;
  run_each(ranks(size), [&](Communicator& c, int) {
    for (int root = 0; root < c.size(); ++root) {
      Values values(c, device);
      const std::uint64_t before = c.statistics().operations;
      broadcast_parameters(c, values.parameters, root);
      // Large values, and those on a GPU, have an operation each; small ones take a pack or two.
      const std::uint64_t operations = c.statistics().operations - before;
      expect(operations <= (device == Device::gpu ? 29 : 8),
             std::to_string(operations) + " operations");
      expect(values.are_of(root), "wrong values");
    }
  });
}

TEST_CASE("broadcast_parameters: what cannot be broadcast is refused on every rank", "[devices]") {
  const Device device = GENERATE(from_range(devices()));
  run_each(ranks(), [&](Communicator& c, int rank) {
    Values values(c, device);
    const auto refused = [&](int at, auto change, Errc code, int root, const std::string& text) {
      std::vector<Parameter> parameters = values.parameters;
      if (rank == at) change(parameters);
      const std::string message =
          error_of(code, [&] { broadcast_parameters(c, parameters, root); });
      expect(message == text || (device == Device::gpu && message.find(text) != message.npos),
             message);
    };
    const auto nothing = [](auto&) {};
    refused(0, nothing, Errc::invalid_argument, 3,
            "on ranks 0-2: broadcast_parameters: the root is 3, but the ranks are 0 to 2");
    refused(
        1, [](auto& list) { list[5].value = nullptr; }, Errc::invalid_argument, 0,
        "on rank 1: parameter 'p5' has no values to broadcast: Parameter::value is null");
    refused(
        2, [](auto& list) { list[1].shape = {1}; }, Errc::mismatch, 0,
        "parameter 'p1' is u8 [97] on ranks 0, 1, but u8 [1] on rank 2");
    if (device == Device::gpu) {
      float on_host[100] = {};
      refused(
          1, [&](auto& list) { list[1].value = on_host; }, Errc::invalid_argument, 0,
          "on rank 1: parameter 'p1' is in host memory, but it should be on GPU " +
              std::to_string(device_of(device, 1)));
      refused(
          1, [](auto& list) { list[1].device = 9; }, Errc::invalid_argument, 0,
          "on rank 1: parameter 'p1' is on GPU 9: there is no GPU 9");
    }
    broadcast_parameters(c, values.parameters);  // nothing has happened
    expect(values.are_of(0), "wrong values");
  });
}

// The other ranks would wait until their deadline.
TEST_CASE("broadcast_parameters: a GPU that refuses copies ends it on all ranks", "[gpu]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  const char* const function = GENERATE("cuMemHostAlloc", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync");
  std::barrier together(2);
  const std::vector<std::string> messages = messages_of(Setup{}, [&](Communicator& c, OnGpu& on) {
    const device::DeviceMemory memory(on.gpu(), 100);
    const Parameter parameter{
        "p", {100}, DType::u8, on.gpu().ordinal(), reinterpret_cast<void*>(memory.address())};
    together.arrive_and_wait();
    if (c.rank() == 0) fake.fail(function, 1, -1, 304);
    together.arrive_and_wait();
    broadcast_parameters(c, std::span(&parameter, 1));
    c.barrier().wait();
  });
  fake.clear();
  for (const std::string& message : messages)
    CHECK_THAT(message, Catch::Matchers::Contains(function));
}

}  // namespace
}  // namespace rondo::testing
