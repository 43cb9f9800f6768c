// SPDX-License-Identifier: Apache-2.0
//
// Values of parameters on GPUs: small ones, which travel packed, and large ones, beside others in
// host memory.
#include <barrier>

#include "catch.h"
#include "gpu/gradients.h"

namespace rondo::testing {
namespace {

Bytes bytes_of(int rank, std::size_t parameter, std::size_t bytes) {
  Bytes values(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    values[i] =
        static_cast<std::byte>(i * 7 + parameter * 13 + static_cast<std::size_t>(rank) * 101);
  return values;
}

// Every third parameter is in host memory.
class Model {
 public:
  Model(Communicator& c, OnGpu& on) : on_(on) {
    const DType types[] = {DType::f32, DType::u8, DType::i64, DType::bf16, DType::f64};
    for (std::size_t i = 0; i < 40; ++i) {
      const std::size_t count = i % 13 == 7 ? 70'000 + i : i % 11 == 0 ? 0 : i * 97 % 5003;
      const DType type = types[i % 5];
      const std::size_t bytes = count * size_of(type);
      sizes_.push_back(bytes);
      host_.push_back(bytes_of(c.rank(), i, bytes));
      const bool on_host = i % 3 == 2;
      if (!on_host)
        device_.emplace_back(std::make_unique<device::DeviceMemory>(on.gpu(), bytes + 1));
      void* const value =
          on_host ? host_.back().data() : reinterpret_cast<void*>(device_.back()->address());
      if (!on_host) on.copier.write(device_.back()->address(), host_.back());
      parameters.push_back(
          {"p" + std::to_string(i), {count}, type, on_host ? -1 : on.gpu().ordinal(), value});
    }
  }
  bool has_values_of(int rank) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].device >= 0)
        on_.copier.read(host_[i], reinterpret_cast<device::Address>(parameters[i].value));
      if (host_[i] != bytes_of(rank, i, sizes_[i])) return false;
    }
    return true;
  }

  std::vector<Parameter> parameters;

 private:
  OnGpu& on_;
  std::vector<std::size_t> sizes_;
  std::vector<Bytes> host_;
  std::vector<std::unique_ptr<device::DeviceMemory>> device_;
};

TEST_CASE("broadcast_parameters gives every rank the values of the root on GPUs") {
  if (FakeCuda::missing()) return;
  Setup setup;
  setup.size = GENERATE(1, 2, 3);
  CHECK_NOTHROW(run_on_gpus(setup, "broadcast", [&](Communicator& c, OnGpu& on) {
    for (int root = 0; root < c.size(); ++root) {
      Model model(c, on);
      const std::uint64_t before = c.statistics().operations;
      broadcast_parameters(c, model.parameters, root);
      expect(c.statistics().operations - before <= 6, "small ones travel packed");
      expect(model.has_values_of(root), "wrong values");
    }
  }));
}

TEST_CASE("broadcast_parameters: what is wrong on a GPU is refused on every rank") {
  if (FakeCuda::missing()) return;
  CHECK_NOTHROW(run_on_gpus(Setup{}, "refused", [&](Communicator& c, OnGpu& on) {
    Model model(c, on);
    const auto wrong = [&](auto change, const std::string& text) {
      std::vector<Parameter> parameters = model.parameters;
      if (c.rank() == 1) change(parameters[1]);
      refused(Errc::invalid_argument, text, [&] { broadcast_parameters(c, parameters); });
    };
    float on_host[100] = {};
    wrong([&](Parameter& p) { p.value = on_host; },
          "on rank 1: parameter 'p1' is in host memory, but it should be on GPU 1");
    wrong([](Parameter& p) { p.device = 9; },
          "on rank 1: parameter 'p1' is on GPU 9: there is no GPU 9");
    broadcast_parameters(c, model.parameters);  // nothing has happened
    expect(model.has_values_of(0), "wrong values");
  }));
}

// The other ranks would wait until their deadline.
TEST_CASE("broadcast_parameters: a GPU that refuses copies ends it on all ranks") {
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
