// SPDX-License-Identifier: Apache-2.0
//
// Sums on GPU memory have the bits of the same sums on host memory.
#include "catch.h"
#include "gpu/gpu_ranks.h"
#include "support/draw.h"
#include "support/effort.h"
#include "support/fake_kernels.h"

namespace rondo::testing {
namespace {

using Bytes = std::vector<std::byte>;

// Finite values below 2 in magnitude: the highest bit of each exponent is 0.
Bytes draw_values(DType type, std::size_t count, std::uint64_t seed) {
  Draw draw(seed);
  Bytes bytes(count * size_of(type));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(draw(256));
  if (!is_integer(type))
    for (std::size_t i = size_of(type) - 1; i < bytes.size(); i += size_of(type))
      bytes[i] &= std::byte{0xbf};
  return bytes;
}

class OnBoth {
 public:
  OnBoth(Communicator& communicator, OnGpu& on) : communicator_(communicator), on_(on) {}

  // Runs the call on host memory and on the GPU. Throws when a bit differs.
  void compare(Collective operation, DType type, ReduceOp op, std::size_t count) {
    const auto n = static_cast<std::size_t>(communicator_.size());
    const bool scatters = operation == Collective::reduce_scatter;
    const Bytes in = draw_values(type, count * (scatters ? n : 1),
                                 static_cast<std::uint64_t>(communicator_.rank()) + 7 * ++calls_);
    Bytes host(count * size_of(type)), gpu(host);
    Bytes host_in = in;
    run(operation, op, {host_in.data(), in.size() / size_of(type), type},
        {host.data(), count, type});
    const device::DeviceMemory gpu_in(on_.gpu(), in.size()), gpu_out(on_.gpu(), gpu.size());
    on_.copier.write(gpu_in.address(), in);
    on_.copier.write(gpu_out.address(), gpu);
    const int ordinal = on_.gpu().ordinal();
    run(operation, op,
        {reinterpret_cast<void*>(gpu_in.address()), in.size() / size_of(type), type, ordinal},
        {reinterpret_cast<void*>(gpu_out.address()), count, type, ordinal});
    on_.copier.read(gpu, gpu_out.address());
    expect(gpu == host, [&] {
      return std::string(name_of(operation)) + " of " + std::to_string(count) + " " +
             std::string(name_of(type)) + " " + std::string(name_of(op)) +
             " has other bits on a GPU";
    });
  }

 private:
  void run(Collective operation, ReduceOp op, Buffer in, Buffer out) {
    if (operation == Collective::all_reduce) communicator_.all_reduce(in, out, op).wait();
    if (operation == Collective::reduce) communicator_.reduce(in, out, op, 1).wait();
    if (operation == Collective::reduce_scatter) communicator_.reduce_scatter(in, out, op).wait();
  }

  Communicator& communicator_;
  OnGpu& on_;
  std::uint64_t calls_ = 0;
};

// Every `each`th pair of a type and an operation, from `first` on.
struct Share {
  std::size_t first = 0, each = 1;
};
// The smaller sets have a third of the pairs, which the seed chooses.
Share some() {
  return whole_set() ? Share{} : Share{test_seed() % 3, 3};
}

using Operations = std::vector<Collective>;

// Counts are about this number.
void compare_all(const Setup& setup, const std::string& what, std::size_t count = 101,
                 Share share = some(),
                 const Operations& operations = {Collective::all_reduce, Collective::reduce,
                                                 Collective::reduce_scatter}) {
  run_on_gpus(setup, what, [=](Communicator& c, OnGpu& on) {
    OnBoth both(c, on);
    std::size_t pairs = 0;
    for (int type = 0; type < dtype_count; ++type)
      for (int op = 0; op < reduce_op_count; ++op) {
        if (pairs++ % share.each != share.first) continue;
        for (const Collective operation : operations)
          if (supports(static_cast<DType>(type), static_cast<ReduceOp>(op)))
            both.compare(operation, static_cast<DType>(type), static_cast<ReduceOp>(op),
                         count + static_cast<std::size_t>(type + op));
      }
  });
}

std::vector<int> sizes(std::size_t row) {
  // 33: see some().
  return few_cases() ? std::vector<int>{3} : in_turn<int>({2, 3, 5}, row, 33);
}

TEST_CASE("reproducible sums have the bits of host memory", "[bits]") {
  for (const Over over : {Over::mem, Over::tcp, Over::shm})
    for (const int size : sizes(static_cast<std::size_t>(over))) {
      Setup setup;
      setup.size = size;
      setup.over = over;
      setup.options.reproducible = true;
      compare_all(setup, std::string("reproducible over ") + std::string(name_of(over)));
    }
}

TEST_CASE("sums by each algorithm have the bits of host memory", "[bits]") {
  // In the whole set each size has a share of the pairs, and all sizes together have all pairs.
  for (const std::string algorithm :
       {"ring", "tree", "doubling", "halving", "two_shot", "star", "chain"}) {
    const std::vector<int> all = sizes(algorithm.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      Setup setup;
      setup.size = all[i];
      setup.options.algorithm = algorithm;
      setup.options.segment_bytes = 96;
      compare_all(setup, algorithm, 101, whole_set() ? Share{i, all.size()} : some());
    }
  }
}

// Both round once, in rank order. The first calls go through the host, the others through slots of
// GPUs.
TEST_CASE("direct sums in slots of GPUs have the bits of host memory", "[bits][slots]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  register_device_kernels(fake);
  const std::vector<int> all = sizes(0);
  for (const bool reproducible : {false, true})
    for (std::size_t i = 0; i < all.size(); ++i) {
      Setup setup = direct_setup(all[i]);
      setup.options.reproducible = reproducible;
      const unsigned long before = fake.calls("cuLaunchKernel");
      compare_all(setup, "direct", 20'000, whole_set() ? Share{i, all.size()} : some());
      CHECK(fake.calls("cuLaunchKernel") > before + 500 / 3);
    }
}

// The ranks of a host sum in memory of their GPUs, or in host memory. Segments of one size make the
// same slices. A reduce of GPU memory goes over links only, in another order than through memory.
TEST_CASE("two-level sums have the bits of host memory", "[bits][two_level]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  register_device_kernels(fake);
  Setup setup = direct_setup(4);
  setup.hosts = {0, 0, 0, 1};
  setup.options.algorithm = "two_level";
  setup.options.depth = 3;
  setup.options.staging_bytes = 1'000'000;
  const std::size_t large = whole_set() && !few_cases() ? 20'000 : 6'000;
  for (const std::size_t count : {std::size_t{101}, large}) {
    setup.options.segment_bytes = count < 1000 ? 96 : 60'000;
    const unsigned long before = fake.calls("cuLaunchKernel");
    compare_all(setup, "two_level", count, some(),
                {Collective::all_reduce, Collective::reduce_scatter});
    const unsigned long launched = fake.calls("cuLaunchKernel") - before;
    CHECK((count < 1000 || launched > 30));
  }
}

}  // namespace
}  // namespace rondo::testing
