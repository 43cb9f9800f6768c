// SPDX-License-Identifier: Apache-2.0
//
// One rank as a process, with buffers on a GPU: it runs collectives and checks their results.
//   gpu_rank MODE OPERATIONS 0 COUNT
// MODE: run, or by direct algorithms: direct, on memory of Communicator::allocate; slots, on memory
// that only this rank reaches; registered, on memory of cudaMalloc that is registered, now and then
// anew. inside: two levels, with ranks 2i and 2i + 1 as those of host i, on memory of allocate.
// Writes "ready ADDRESS" once connected, then one line: "ok", "wrong N", or "error CODE MESSAGE".
// After an error it uses the GPU in a communicator of its own first, and writes "unusable" if that
// fails.
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "device/gpus.h"
#include "support/fake_kernels.h"
#include "support/gpu_memory.h"
#include "support/trial.h"

namespace {

using namespace rondo;
using testing::Case;
using testing::GpuCopier;
using testing::Trial;

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

Case some_call(std::uint64_t number, int size, std::size_t count) {
  return {.operation = testing::some_operation(number),
          .count = count,
          .root = static_cast<int>(number % static_cast<std::uint64_t>(size)),
          .in_place = number % 3 == 0};
}

// As many bytes as the trials of one call need.
std::size_t arena_bytes(int size, std::size_t count) {
  return (count * sizeof(float) * 4 + 4096) * static_cast<std::size_t>(size);
}

// Memory of cudaMalloc that is registered.
struct Registered {
  Registered(Communicator& communicator, const device::Gpu& gpu, std::size_t bytes)
      : memory(gpu, bytes),
        registration(communicator.register_memory(reinterpret_cast<void*>(memory.address()), bytes,
                                                  gpu.ordinal())) {}
  device::DeviceMemory memory;
  Registration registration;
};

// Calls on registered memory, after which others have seen it.
constexpr long calls_of_a_registration = 11;

std::string run(GpuCopier& copier, std::string_view mode, long operations, std::size_t count) {
  Options options;
  if (mode == "inside") {
    options.algorithm = "two_level";
    options.host = "host " + std::to_string(std::atoi(std::getenv("RONDO_RANK")) / 2);
  } else if (mode != "run") {
    options.algorithm = "direct";
  }
  Communicator communicator = Communicator::connect(options);
  const std::size_t bytes = arena_bytes(communicator.size(), count);
  const Memory arena =
      mode == "direct" || mode == "inside" ? communicator.allocate(bytes, 0) : Memory();
  std::optional<Registered> registered;
  say("ready " + communicator.address());
  for (long i = 0; operations == 0 || i < operations; ++i) {
    if (mode == "registered" && i % calls_of_a_registration == 0)
      registered.emplace(communicator, copier.gpu(), bytes);
    Trial trial(some_call(static_cast<std::uint64_t>(i), communicator.size(), count),
                communicator.rank(), communicator.size());
    if (registered)
      trial.place_at(copier, registered->memory.address());
    else if (arena.data() != nullptr)
      trial.place_at(copier, reinterpret_cast<device::Address>(arena.data()));
    else
      trial.place_on(copier);
    trial.start(communicator);
    trial.work().wait();
    if (const std::string problem = trial.problem(); !problem.empty()) return "wrong " + problem;
  }
  if (mode != "run" && FakeCuda::here() && FakeCuda().calls("cuLaunchKernel") == 0)
    return "wrong way: no kernels have combined anything";
  return "ok";
}

bool is_usable(GpuCopier& copier) {
  Communicator alone =
      Communicator::connect({.rank = 0, .size = 1, .rendezvous = "tcp://127.0.0.1:1"});
  Trial trial({.count = 1000}, 0, 1);
  trial.place_on(copier);
  trial.start(alone);
  trial.work().wait();
  return trial.problem().empty();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  device::Gpus gpus;
  GpuCopier copier(gpus.gpu(0));
  try {
    if (FakeCuda::here()) testing::register_device_kernels(FakeCuda());
    say(run(copier, argv[1], std::atol(argv[2]), std::strtoull(argv[4], nullptr, 10)));
  } catch (const Error& error) {
    say(is_usable(copier) ? "error " + std::to_string(error.code().value()) + " " + error.what()
                          : "unusable");
  }
}
