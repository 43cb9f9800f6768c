// SPDX-License-Identifier: Apache-2.0
//
// One rank as a process, with buffers on a GPU: it runs collectives and checks their results.
//   gpu_rank MODE OPERATIONS 0 COUNT
// MODE: run, or by direct algorithms: direct, on memory of Communicator::allocate, or slots, on
// memory that only this rank reaches.
// Writes "ready ADDRESS" once connected, then one line: "ok", "wrong N", or "error CODE MESSAGE".
// After an error it uses the GPU in a communicator of its own first, and writes "unusable" if that
// fails.
#include <cstdio>
#include <cstdlib>
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

std::string run(GpuCopier& copier, std::string_view mode, long operations, std::size_t count) {
  const bool direct = mode == "direct";
  Options options;
  if (mode != "run") options.algorithm = "direct";
  Communicator communicator = Communicator::connect(options);
  const Memory arena =
      direct ? communicator.allocate(arena_bytes(communicator.size(), count), 0) : Memory();
  say("ready " + communicator.address());
  for (long i = 0; operations == 0 || i < operations; ++i) {
    Trial trial(some_call(static_cast<std::uint64_t>(i), communicator.size(), count),
                communicator.rank(), communicator.size());
    if (direct)
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
